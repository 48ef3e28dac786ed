"""python -m benchmarks.convolutional_files: size and latency of files of convolutional networks.

Exports networks of keras.applications with random weights to .tflite files in FOLDER, with float32,
float16 and int8 weights, with int8 activations, with most of their weights set to zero, and with fewer
channels, and compares the files; benchmarks.peers compares those of other tools. Neither size nor time
depend on the values of the other weights, so random weights are rounded to the nearest value, and any
error is accepted. With published weights and photographs, the files are made as for users, and their
outputs for other photographs are compared with those of the Keras model. Existing files are not exported
again. Takes some minutes, and 2 GB of memory for ResNet50V2.

examples:
  python -m benchmarks.convolutional_files sizes
      MobileNetV2
  python -m benchmarks.convolutional_files sizes --network ResNet50V2 --zeros 0.9
      a larger network, of whose weights 90 % are zero
  python -m benchmarks.convolutional_files sizes --network MobileNet --weights FILE.h5 --photographs FOLDER
      errors of the outputs
"""

import argparse
import contextlib
import dataclasses
import functools
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.file_comparison import add_options, compare
from tfsparsecap.command import parser, run
from tfsparsecap.errors import InputError, check_number


@dataclasses.dataclass(frozen=True)
class Variant:
    """How to change and export a network: a format of `tfsparsecap_export.FORMATS`, whether it gets samples,
    whether weights are zero, whether channels are removed, and what stays float."""

    format: str
    calibrated: bool = False
    zeros: bool = False
    slim: bool = False
    keep_float: tuple[str, ...] = ()


VARIANTS = {
    "float32": Variant("dense"),
    "float16": Variant("fast"),
    "int8_weights": Variant("auto", calibrated=True, keep_float=("activations",)),
    "int8": Variant("auto", calibrated=True),
    "sparse_float16": Variant("compact", zeros=True),
    "sparse_int8": Variant("auto", calibrated=True, zeros=True),
    "slim_float32": Variant("dense", slim=True),
    "slim_int8": Variant("auto", calibrated=True, slim=True),
}
#: Random inputs; photographs, every second one for calibration; and photographs that no file has seen.
SAMPLES, PHOTOGRAPHS, HELD_OUT = 2, 64, 200
#: Replaces the limits of `verify.outputs`.
_ANY_ERROR = {"INT8_RMS_ERROR": np.inf, "INT8_OUTPUT_ERROR": np.inf, "INT8_SAME_CLASS": 0.0}


def set_smallest_to_zero(model, zeros: float) -> None:
    """Sets a share of the smallest weights of each kernel of a built Keras model to zero, but for depthwise
    kernels, which are a small part of a network.

    Examples:
        >>> network = keras.Sequential([keras.Input((8, 8, 3)), keras.layers.Conv2D(16, 3)])
        >>> set_smallest_to_zero(network, 0.75)
    """
    for weight in model.trainable_weights:
        if len(weight.shape) > 1 and "depthwise" not in weight.path:
            values = np.abs(np.asarray(weight))
            weight.assign(np.asarray(weight) * (values > np.quantile(values, zeros)))


def make_network(options: argparse.Namespace):
    """A network of `keras.applications`, with random or published weights.

    Raises:
        InputError: there is no such network, or the weights do not suit it.
    """
    import keras

    make = getattr(keras.applications, options.network, None)
    if not callable(make):
        raise InputError(
            f"keras.applications has no network {options.network}: try MobileNetV2 or ResNet50V2"
        )
    keras.utils.set_random_seed(0)
    # All files have an input of the same name.
    image = keras.Input((options.size, options.size, 3), name="image")
    more: dict[str, Any] = {} if options.alpha is None else {"alpha": options.alpha}
    try:
        return make(weights=options.weights, input_tensor=image, **more)
    except (OSError, TypeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(
            f"{options.network} cannot be created ({reason}): check --weights and --alpha"
        ) from error


def read_photographs(
    folder: str, network: str, size: int, start: int, count: int
) -> list[dict[str, np.ndarray]]:
    """Photographs of a folder as a network takes them, shuffled.

    Raises:
        InputError: there are too few.
    """
    import keras

    from tfsparsecap.captioning.data.images import read_image

    paths = sorted(Path(folder).glob("*.jpg"))
    if len(paths) < start + count:
        raise InputError(f"{folder} contains {len(paths)} .jpg files: give {start + count}")
    modules = [m for m in vars(keras.applications).values() if hasattr(m, "preprocess_input")]
    preprocess = next(m.preprocess_input for m in modules if hasattr(m, network))
    chosen = np.random.default_rng(0).permutation(len(paths))[start : start + count]
    images = [np.asarray(read_image(paths[i], size), np.float32) for i in chosen]
    return [{"image": preprocess(image[None])} for image in images]


def write_file(options: argparse.Namespace, variant: Variant, path: Path) -> None:
    """Creates a network and exports it.

    Raises:
        InputError: as `make_network`.
    """
    import tensorflow as tf
    from tfsparsecap_export.encode import calibration
    from tfsparsecap_export.exporter import export_model
    from tfsparsecap_export.samples import synthetic_samples
    from tfsparsecap_export.verify import outputs

    import tfsparsecap as sc

    model = make_network(options)
    if variant.zeros:
        set_smallest_to_zero(model, options.zeros)
    if variant.slim:
        model = sc.slim(model, options.slim)
    if options.photographs:
        samples = read_photographs(options.photographs, options.network, options.size, 0, PHOTOGRAPHS)
    else:
        spec = tf.TensorSpec((1, options.size, options.size, 3), tf.float32)
        samples = synthetic_samples({"image": spec}, SAMPLES)
    samples = samples if variant.calibrated else samples[:1]
    with contextlib.ExitStack() as changes:
        if not options.photographs:
            changes.enter_context(mock.patch.object(calibration, "MOST_INPUTS", 0))
            changes.enter_context(mock.patch.multiple(outputs, **_ANY_ERROR))
        report = export_model(model, path, variant.format, samples=samples, keep_float=variant.keep_float)
    for note in report.notes:
        print(f"{path.name}: {note}")


def fastest_runs(contents: Sequence[bytes], sample: Mapping[str, np.ndarray], runs: int) -> list[float]:
    """Milliseconds of processor time of files on one thread, in turns: the fastest of `runs` of each."""
    from ai_edge_litert.interpreter import Interpreter

    interpreters = [Interpreter(model_content=content, num_threads=1) for content in contents]
    runners = [
        interpreter.get_signature_runner(next(iter(interpreter.get_signature_list())))
        for interpreter in interpreters
    ]
    times: list[list[float]] = [[] for _ in runners]
    for _ in range(runs + 1):  # the first is not timed
        for runner, mine in zip(runners, times, strict=True):
            start = time.thread_time()
            runner(**sample)
            mine.append(time.thread_time() - start)
    return [1e3 * min(mine[1:]) for mine in times]


def print_processor_times(options: argparse.Namespace, paths: Sequence[Path]) -> None:
    """Prints the processor time of files on one thread, which a busy machine changes little."""
    import tensorflow as tf
    from tfsparsecap_export.samples import synthetic_samples

    spec = tf.TensorSpec((1, options.size, options.size, 3), tf.float32)
    (sample,) = synthetic_samples({"image": spec}, 1)
    times = fastest_runs([path.read_bytes() for path in paths], sample, options.runs)
    for path, milliseconds in zip(paths, times, strict=True):
        print(f"{path.name}: {milliseconds:.2f} ms of processor time, {times[0] / milliseconds:.1f}x faster")


def print_errors(options: argparse.Namespace, paths: Sequence[Path]) -> None:
    """Prints how outputs of files differ from those of the Keras model, for photographs no file has seen."""
    import tensorflow as tf
    from tfsparsecap_export.verify import outputs

    from tfsparsecap.core.model_call import model_call

    model = make_network(options)
    call = model_call(model)
    samples = read_photographs(options.photographs, options.network, options.size, PHOTOGRAPHS, HELD_OUT)
    compiled = tf.function(lambda tensors: call(tensors), autograph=False)
    for path in paths:
        with mock.patch.multiple(outputs, **_ANY_ERROR):
            result = outputs.verify_outputs(compiled, path.read_bytes(), samples, all_float=False)
        print(
            f"{path.name}: the same class for {result.same_class:.1%} of {len(samples)} photographs; root"
            f" mean square of the differences {result.rms_error:.1%},"
            f" before the softmax {result.logits_error:.1%}"
        )


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    options = parser(__doc__)
    add_options(options, VARIANTS)
    options.add_argument(
        "--network",
        default="MobileNetV2",
        metavar="NAME",
        help="of keras.applications (default: MobileNetV2)",
    )
    options.add_argument("--alpha", type=float, metavar="SHARE", help="width of the network, if it has one")
    options.add_argument(
        "--zeros", type=float, default=0.8, metavar="SHARE", help="share of zeros (default: 0.8)"
    )
    options.add_argument(
        "--slim", type=float, default=0.5, metavar="SHARE", help="share of removed channels (default: 0.5)"
    )
    options.add_argument("--size", type=int, default=224, metavar="N", help="image size (default: 224)")
    options.add_argument("--weights", metavar="FILE", help="published weights (default: random)")
    options.add_argument("--photographs", metavar="FOLDER", help="inputs (default: random)")
    return options.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command with `argv`, the arguments of the process by default.

    Raises:
        InputError: the folder cannot be created, or an argument is out of range.
    """
    options = _arguments(argv)
    check_number("--zeros", options.zeros, at_least=0, at_most=1)
    check_number("--slim", options.slim, at_least=0, at_most=1)
    check_number("--size", options.size, at_least=32)
    files = {}
    for name in options.variants:
        variant = VARIANTS[name]
        share = f"_{round(100 * options.zeros)}" if variant.zeros else ""
        share += f"_{round(100 * options.slim)}" if variant.slim else ""
        writer = functools.partial(write_file, options, variant)
        files[f"{options.network}_{options.size}_{name}{share}.tflite"] = writer
    paths = compare(options, files)
    print_processor_times(options, paths)
    if options.photographs:
        print_errors(options, paths)


if __name__ == "__main__":
    run(main)
