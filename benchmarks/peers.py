"""python -m benchmarks.peers: the same Keras models through the exporters of TensorFlow, Keras and Google.

Each tool exports three models: a network of keras.applications with published weights, and a recurrent
and an attention model that read its features of a photograph, [49, 768] for MobileNet 0.75, and learn its
classes from other photographs. Tools that calibrate get 64 photographs. The table has the bytes of each
file, milliseconds of processor time on one thread (the fastest of runs in turns), the share of 200 other
photographs that get the same class as from the Keras model, and the processor seconds of the export. What
a tool refuses, or LiteRT cannot run, is said below the table. Trained models in FOLDER are used again.
One model takes some minutes.

examples:
  python -m benchmarks.peers peers --weights mobilenet_7_5_224_tf.h5 --photographs Images
      all models
  python -m benchmarks.peers peers --weights mobilenet_7_5_224_tf.h5 --photographs Images --models attention
      one of them
"""

import argparse
import contextlib
import dataclasses
import importlib.metadata
import io
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.convolutional_files import HELD_OUT, PHOTOGRAPHS, fastest_runs, make_network, read_photographs
from tfsparsecap.command import parser, run, start_tensorflow
from tfsparsecap.core.files import atomic_path, atomic_write, make_folder
from tfsparsecap.errors import InputError, check_number, first_line

MODELS = ("convolutional", "recurrent", "attention")
PACKAGES = ("tensorflow", "keras", "litert-quantizer", "ai-edge-litert")
_EPOCHS, _CHUNK = 8, 100
Sample = dict[str, np.ndarray]


@dataclasses.dataclass
class Subject:
    """A Keras model for one example, and photographs as it takes them.

    Attributes:
        model: takes a batch of one.
        calibration: inputs that tools may use.
        tested: inputs that no tool has seen.
    """

    model: Any
    calibration: list[Sample]
    tested: list[Sample]


def tensorflow(subject: Subject, path: Path, optimize: bool = False, calibrate: bool = False) -> None:
    """TensorFlow's converter: float32, int8 weights (dynamic range), or int8 activations too."""
    import tensorflow as tf

    converter = tf.lite.TFLiteConverter.from_keras_model(subject.model)
    if optimize:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
    if calibrate:
        converter.representative_dataset = lambda: iter(subject.calibration)
    atomic_write(path, converter.convert())


def keras_export(subject: Subject, path: Path) -> None:
    """Keras's `export`."""
    with atomic_path(path) as temporary:
        subject.model.export(temporary, format="litert", verbose=False)


def keras_quantize(subject: Subject, path: Path, export: bool = False) -> Any:
    """Keras's `quantize`: the model is exported by Keras, or returned."""
    import keras

    model = keras.models.clone_model(subject.model)
    model.set_weights(subject.model.get_weights())
    model.quantize("int8")
    if not export:
        return model
    with atomic_path(path) as temporary:
        model.export(temporary, format="litert", verbose=False)
    return None


def google(subject: Subject, path: Path, kind: str, algorithm: str) -> None:
    """litert-quantizer, from the float32 file of `export_model`.

    Args:
        kind: "static", "dynamic" or "weight_only".
        algorithm: for weights; GPTQ, which it has for dense layers only, is used for them.
    """
    from litert_quantizer.algorithm_manager import AlgorithmName
    from litert_quantizer.qtyping import TFLOperationName
    from litert_quantizer.quantizer import Quantizer

    source = path.with_name(f"{path.stem.split('-')[0]}-export_model_float32.tflite")
    if not source.exists():
        raise InputError(f"{source} does not exist: add export_model_float32 to --tools")
    tool = Quantizer(str(source))
    basic = "OCTAV" if algorithm == "OCTAV" else "MIN_MAX_UNIFORM_QUANT"
    layers = [(TFLOperationName.ALL_SUPPORTED, basic)]
    if algorithm == "GPTQ":
        layers.append((TFLOperationName.FULLY_CONNECTED, algorithm))
    for operation, name in layers:
        bits = {"activation_num_bits": 8, "weight_num_bits": 8} if kind == "static" else {"num_bits": 8}
        add = getattr(tool, f"add_{kind}_config")
        add(regex=".*", operation_name=operation, algorithm_key=AlgorithmName[name], **bits)
    statistics = None
    if kind == "static":
        for end in (TFLOperationName.INPUT, TFLOperationName.OUTPUT):  # float32, as those of other files
            tool.update_quantization_recipe(".*", end, algorithm_key=AlgorithmName.NO_QUANTIZE)
    if tool.need_calibration:
        statistics = tool.calibrate({"serving_default": subject.calibration}, num_threads=1)
    atomic_write(path, bytes(tool.quantize(statistics, enable_progress_report=False).quantized_model))


def ours(subject: Subject, path: Path, format: str, **options: Any) -> None:
    """`export_model`, for the processor of this machine."""
    from tfsparsecap_export import export_model

    target = "x86_64" if platform.machine() == "x86_64" else "arm64"
    export_model(subject.model, path, format, samples=subject.calibration, target=target, **options)


#: Name of a file -> what writes it, and its options.
TOOLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "export_model_float32": (ours, {"format": "dense"}),
    "export_model_float16": (ours, {"format": "fast"}),
    "export_model_int8_weights": (ours, {"format": "int8", "keep_float": ("activations",)}),
    "export_model_int8": (ours, {"format": "int8"}),
    "tensorflow_float32": (tensorflow, {}),
    "tensorflow_int8_weights": (tensorflow, {"optimize": True}),
    "tensorflow_int8": (tensorflow, {"optimize": True, "calibrate": True}),
    "keras_export": (keras_export, {}),
    "keras_quantize": (keras_quantize, {}),
    "keras_quantize_export": (keras_quantize, {"export": True}),
    **{
        f"litert-quantizer_{kind}_{algorithm}": (google, {"kind": kind, "algorithm": algorithm})
        for kind in ("static", "dynamic", "weight_only")
        for algorithm in ("min_max", "OCTAV", "GPTQ")
    },
}
#: What would end this process.
_CRASHES = {
    ("recurrent", "tensorflow_int8"): "TensorFlow 2.21's calibration of a fused LSTM is a segmentation fault"
}


def reader(kind: str, features: tuple[int, int], classes: int) -> Any:
    """A model of the features of a photograph, with random weights.

    Args:
        kind: "recurrent" or "attention".
        features: number of places, and of features of each.
        classes: number of classes.
    """
    import keras

    keras.utils.set_random_seed(0)
    x = inputs = keras.Input(features, name="features")
    if kind == "recurrent":
        # The rows of the photograph, for seven columns.
        x = keras.layers.LSTM(256, name="lstm")(keras.layers.AveragePooling1D(7, name="rows")(x))
    else:
        x = keras.layers.Dense(256, name="project")(x)
        for block in range(2):
            y = keras.layers.LayerNormalization(name=f"norm_{block}")(x)
            x = x + keras.layers.MultiHeadAttention(4, 64, name=f"attention_{block}")(y, y)
            y = keras.layers.LayerNormalization(name=f"norm_{block}_hidden")(x)
            y = keras.layers.Dense(1024, activation="relu", name=f"hidden_{block}")(y)
            x = x + keras.layers.Dense(256, name=f"outer_{block}")(y)
        x = keras.layers.GlobalAveragePooling1D(name="mean")(keras.layers.LayerNormalization(name="norm")(x))
    return keras.Model(inputs, keras.layers.Dense(classes, "softmax", name="classes")(x), name=kind)


class Photographs:
    """Photographs of a folder, and what a network says about them."""

    def __init__(self, options: argparse.Namespace) -> None:
        import keras

        self.options, self.network = options, make_network(options)
        pooling = keras.layers.GlobalAveragePooling2D
        (pool,) = (layer for layer in self.network.layers if isinstance(layer, pooling))
        features = keras.layers.Reshape((-1, pool.input.shape[-1]))(pool.input)
        self.with_features = keras.Model(self.network.inputs, [features, self.network.output])

    def images(self, start: int, count: int) -> list[Sample]:
        """Photographs as the network takes them."""
        options = self.options
        return read_photographs(options.photographs, options.network, options.size, start, count)

    def features(self, start: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Features, float32 [count, places, features], and classes, int64 [count], of photographs."""
        outputs = []
        for first in range(start, start + count, _CHUNK):
            images = self.images(first, min(_CHUNK, start + count - first))
            batch = np.concatenate([image["image"] for image in images])
            outputs.append(self.with_features.predict(batch, verbose=0))
        features, probabilities = (np.concatenate(part) for part in zip(*outputs, strict=True))
        return features, probabilities.argmax(axis=-1)


def trained(kind: str, photographs: Photographs) -> Any:
    """The model of `reader`, trained, from a file of the folder if it is there."""
    import keras

    path = photographs.options.folder / f"{kind}.keras"
    if path.exists():
        return keras.saving.load_model(path)
    features, classes = photographs.features(PHOTOGRAPHS + HELD_OUT, photographs.options.train)
    model = reader(kind, features.shape[1:], photographs.network.output.shape[-1])
    model.compile(keras.optimizers.Adam(1e-3), "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(features, classes, batch_size=32, epochs=_EPOCHS, verbose=2)
    with atomic_path(path) as temporary:
        model.save(temporary)
    return model


def subject_of(kind: str, photographs: Photographs) -> Subject:
    """A model, for a batch of one, and its inputs."""
    import keras

    model = photographs.network if kind == "convolutional" else trained(kind, photographs)
    spec = model.inputs[0]
    single_input = keras.Input(batch_shape=(1, *spec.shape[1:]), dtype=spec.dtype, name=spec.name)
    single = keras.models.clone_model(
        model, input_tensors=keras.tree.map_structure(lambda _: single_input, model.input)
    )
    single.set_weights(model.get_weights())
    if kind == "convolutional":
        return Subject(single, photographs.images(0, PHOTOGRAPHS), photographs.images(PHOTOGRAPHS, HELD_OUT))
    parts = [photographs.features(0, PHOTOGRAPHS)[0], photographs.features(PHOTOGRAPHS, HELD_OUT)[0]]
    return Subject(single, *([{spec.name: row[None]} for row in part] for part in parts))


def classes(model: Any, samples: Sequence[Sample]) -> np.ndarray:
    """The class that a Keras model with one input gives to each sample."""
    import keras

    results = []
    for sample in samples:
        (values,) = sample.values()
        inputs = keras.tree.pack_sequence_as(model.input, [values])
        results.append(np.asarray(model(inputs, training=False)).argmax())
    return np.array(results)


def classes_of(path: Path, samples: Sequence[Sample]) -> np.ndarray:
    """The class that a file gives to each sample."""
    from ai_edge_litert.interpreter import Interpreter

    runner = Interpreter(str(path), num_threads=1).get_signature_runner()
    return np.array([next(iter(runner(**sample).values())).argmax() for sample in samples])


def compare(kind: str, subject: Subject, options: argparse.Namespace) -> None:
    """Writes the files of all tools and prints the table of a model."""
    from tfsparsecap_export.tables import console, new_table

    from tfsparsecap.core.keras_internals import conversion_error
    from tfsparsecap.core.model_call import CALL_ERRORS

    failures = (*CALL_ERRORS, RuntimeError, conversion_error())
    expected = classes(subject.model, subject.tested)
    rows: dict[str, tuple[Path | None, float, float]] = {}
    refused: list[str] = []
    for name in options.tools:
        write, arguments = TOOLS[name]
        if (kind, name) in _CRASHES:
            refused.append(f"{name}: {_CRASHES[kind, name]}")
            continue
        path = options.folder / f"{kind}-{name}.tflite"
        try:
            start = time.process_time()
            with contextlib.redirect_stdout(io.StringIO()):  # what Keras and TensorFlow print about graphs
                model = write(subject, path, **arguments)
            seconds = time.process_time() - start
            predictions = classes(model, subject.tested) if model else classes_of(path, subject.tested)
            same = float((predictions == expected).mean())
            rows[name] = None if model else path, seconds, same
        except failures as error:
            refused.append(f"{name}: {first_line(error)[:200]}")
    files = {name: path.read_bytes() for name, (path, *_) in rows.items() if path is not None}
    fastest = fastest_runs([*files.values()], subject.tested[0], options.runs)
    times = dict(zip(files, fastest, strict=True))
    table = new_table(kind, "file", ">bytes", ">ms", ">same class", ">seconds")
    for name, (_, seconds, share) in rows.items():
        measured = (f"{len(files[name]):,}", f"{times[name]:.2f}") if name in files else ("", "")
        table.add_row(name, *measured, f"{share:.1%}", f"{seconds:.1f}")
    console().print(table)
    for line in refused:
        print(line)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    options = parser(__doc__)
    options.add_argument("folder", type=Path, metavar="FOLDER", help="folder for the files")
    options.add_argument("--weights", required=True, metavar="FILE", help="published weights of the network")
    options.add_argument("--photographs", required=True, metavar="FOLDER", help="with .jpg files")
    options.add_argument("--network", default="MobileNet", metavar="NAME", help="(default: MobileNet)")
    options.add_argument("--alpha", type=float, default=0.75, metavar="SHARE", help="(default: 0.75)")
    options.add_argument("--size", type=int, default=224, metavar="N", help="image size (default: 224)")
    options.add_argument("--models", nargs="+", choices=MODELS, default=[*MODELS], help="(default: all)")
    options.add_argument(
        "--tools", nargs="+", choices=[*TOOLS], default=[*TOOLS], metavar="NAME", help="(default: all)"
    )
    options.add_argument("--train", type=int, default=1000, metavar="N", help="photographs (default: 1000)")
    options.add_argument("--runs", type=int, default=40, metavar="N", help="of each file (default: 40)")
    return options.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command with `argv`, the arguments of the process by default.

    Raises:
        InputError: an argument cannot be used, or litert-quantizer is not installed.
    """
    options = _arguments(argv)
    for name, least in (("--size", 32), ("--train", 1), ("--runs", 1)):
        check_number(name, getattr(options, name.strip("-")), at_least=least)
    make_folder(options.folder)
    try:
        versions = [f"{name} {importlib.metadata.version(name)}" for name in PACKAGES]
    except importlib.metadata.PackageNotFoundError as error:
        raise InputError(f"{error.name} is not installed: pip install {error.name}") from error
    start_tensorflow()
    print(", ".join(versions))
    photographs = Photographs(options)
    for kind in options.models:
        compare(kind, subject_of(kind, photographs), options)


if __name__ == "__main__":
    run(main)
