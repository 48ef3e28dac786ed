"""python -m benchmarks.distil: what networks that are too large for a phone know, for small ones, on a GPU.

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
    options = parser(__doc__)
    options.add_argument("task", choices=("captions", "encoder"), help="what to do")
    options.add_argument("table", type=Path, help="folder of images with captions, see docs/data.md")
    options.add_argument("--dinov2", type=Path, required=True, metavar="FILE.onnx", help="DINOv2 ViT-S/14")
    options.add_argument("--output", type=Path, required=True, metavar="FILE", help="where to write")
    options.add_argument("--network", choices=_NETWORKS, default=_NETWORKS[0], help="the encoder to train")
    options.add_argument("--weights", type=Path, metavar="FILE", help="its published weights")
    options.add_argument("--epochs", type=int, help="17 for captions and 52 for an encoder by default")
    given = options.parse_args(argv)
    if given.task == "encoder" and given.weights is None:
        raise InputError(f"the training begins with the published weights of {given.network}: give --weights")
    if given.epochs is not None and given.epochs < 1:
        raise InputError(f"--epochs is {given.epochs}: give 1 or more")
    check_output(given.output)
    try:
        from benchmarks.distil_training import distil
    except ImportError as error:
        raise InputError(f"{error}: pip install torch timm onnx, which only this command needs") from error
    distil(given)
    return 0


if __name__ == "__main__":
    run(main)
