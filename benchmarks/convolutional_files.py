"""python -m benchmarks.convolutional_files: size and latency of files of convolutional networks.

Exports networks of keras.applications with random weights to .tflite files in FOLDER, with float32, float16
and int8 weights, and with most of their weights set to zero, and compares the files. Neither size nor time
depend on the values of the other weights. Existing files are not exported again. Takes some minutes, and 2 GB
of memory for ResNet50V2.

examples:
  python -m benchmarks.convolutional_files sizes
      MobileNetV2
  python -m benchmarks.convolutional_files sizes --network ResNet50V2 --zeros 0.9
      a larger network, of whose weights 90 % are zero
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tfsparsecap.command import parser, run, start_tensorflow
from tfsparsecap.errors import InputError, check_number

#: File -> format, whether it gets samples, and whether weights are zero.
VARIANTS = {
    "float32": ("dense", False, False),
    "float16": ("fast", False, False),
    "int8": ("auto", True, False),
    "sparse_float16": ("compact", False, True),
    "sparse_int8": ("auto", True, True),
}
_SAMPLES = 8


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


def write_file(network: str, variant: str, zeros: float, size: int, path: Path) -> None:
    """Creates a network of `keras.applications` with random weights and exports it.

    Raises:
        InputError: there is no such network.
    """
    import keras
    import tensorflow as tf
    from tfsparsecap_export.exporter import export_model
    from tfsparsecap_export.samples import synthetic_samples

    make = getattr(keras.applications, network, None)
    if not callable(make):
        raise InputError(f"keras.applications has no network {network}: try MobileNetV2 or ResNet50V2")
    keras.utils.set_random_seed(0)
    # All files have an input of the same name.
    model = make(weights=None, input_tensor=keras.Input((size, size, 3), name="image"))
    format, calibrated, pruned = VARIANTS[variant]
    if pruned:
        set_smallest_to_zero(model, zeros)
    samples = synthetic_samples({"image": tf.TensorSpec((1, size, size, 3), tf.float32)}, _SAMPLES)
    export_model(model, path, format, samples=samples if calibrated else samples[:1])


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    options = parser(__doc__)
    options.add_argument("folder", type=Path, metavar="FOLDER", help="folder for the files")
    options.add_argument(
        "--network",
        default="MobileNetV2",
        metavar="NAME",
        help="of keras.applications (default: MobileNetV2)",
    )
    options.add_argument(
        "--zeros", type=float, default=0.8, metavar="SHARE", help="share of zeros (default: 0.8)"
    )
    options.add_argument("--size", type=int, default=224, metavar="N", help="image size (default: 224)")
    options.add_argument("--runs", type=int, default=40, metavar="N", help="runs of each file (default: 40)")
    options.add_argument("--threads", type=int, default=1, metavar="N", help="CPU threads (default: 1)")
    return options.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command with `argv`, the arguments of the process by default.

    Raises:
        InputError: the folder cannot be created, or an argument is out of range.
    """
    options = _arguments(argv)
    check_number("--zeros", options.zeros, at_least=0, at_most=1)
    check_number("--size", options.size, at_least=32)
    try:
        options.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot create the folder {options.folder}: {error.strerror}") from error
    start_tensorflow()
    from rich.console import Console
    from tfsparsecap_export import benchmark

    paths = []
    with Console(stderr=True).status("") as status:
        for name, (_, _, pruned) in VARIANTS.items():
            zeros = f"_{round(100 * options.zeros)}" if pruned else ""
            path = options.folder / f"{options.network}_{options.size}_{name}{zeros}.tflite"
            paths.append(str(path))
            if not path.exists():
                status.update(f"writing {path} ({len(paths)} of {len(VARIANTS)})")
                write_file(options.network, name, options.zeros, options.size, path)
    runs, threads = str(options.runs), str(options.threads)
    benchmark.main([*paths, "--runs", runs, "--threads", threads, "--inputs", "4"])


if __name__ == "__main__":
    run(main)
