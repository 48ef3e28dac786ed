"""python -m benchmarks.distil: teaches small networks what networks too large for a phone know, on a GPU.

captions  trains a captioner on DINOv2 ViT-S/14, the encoder too; writes 29 captions of each training image
encoder   trains an EfficientNet-Lite to predict DINOv2's features of an image and its crops, and the words
          and objects of captions, so that a captioner can use it without training it any further

Both take the table that benchmarks.everyday writes, and need PyTorch and timm (pip install torch timm onnx).
On an NVIDIA H200, a prototype with the same losses took seven minutes for the captioner and eight for each of
two encoders, all three at the same time.

examples:
  python -m benchmarks.distil captions everyday --dinov2 DINOV2.onnx --output written.jsonl
  python -m benchmarks.distil encoder everyday --dinov2 DINOV2.onnx --output efficientnet_lite0.safetensors \\
      --weights efficientnet_lite0.pth
      then python -m tfsparsecap.train … model.encoder.weights=efficientnet_lite0.safetensors
"""

import contextlib
from collections.abc import Sequence
from pathlib import Path

with contextlib.suppress(ImportError):
    import timm  # noqa: F401 (with PyTorch, which stops if TensorFlow is imported first: both contain LLVM)

from tfsparsecap.command import parser, run
from tfsparsecap.core.files import check_output
from tfsparsecap.errors import InputError

_NETWORKS = tuple(f"efficientnet_lite{number}" for number in range(4))


def main(argv: Sequence[str] | None = None) -> int:
    """Trains one of the two.

    Raises:
        InputError: a folder or file is missing or damaged.
    """
    command = parser(__doc__)
    command.add_argument("task", choices=("captions", "encoder"), help="what to do")
    command.add_argument("table", type=Path, help="folder of images with captions, see docs/data.md")
    command.add_argument("--dinov2", type=Path, required=True, metavar="FILE.onnx", help="DINOv2 ViT-S/14")
    command.add_argument("--output", type=Path, required=True, metavar="FILE", help="where to write")
    command.add_argument("--network", choices=_NETWORKS, default=_NETWORKS[0], help="the encoder to train")
    command.add_argument("--weights", type=Path, metavar="FILE", help="its published weights")
    command.add_argument("--epochs", type=int, help="17 for captions and 52 for an encoder by default")
    options = command.parse_args(argv)
    if options.task == "encoder" and options.weights is None:
        raise InputError(
            f"the training begins with the published weights of {options.network}: give --weights"
        )
    if options.epochs is not None and options.epochs < 1:
        raise InputError(f"--epochs is {options.epochs}: give 1 or more")
    check_output(options.output)
    try:
        from benchmarks.distil_training import distil
    except ImportError as error:
        raise InputError(f"{error}: pip install torch timm onnx, which only this command needs") from error
    distil(options)
    return 0


if __name__ == "__main__":
    run(main)
