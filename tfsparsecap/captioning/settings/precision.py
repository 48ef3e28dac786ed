"""What `training.precision` means on this machine: Keras's policy, or products in bfloat16 on a processor.

With Keras's policy, sums and activations are in bfloat16 as well, for which processors have no instructions.
TensorFlow can instead change the products of a float32 graph, which halves the time of large ones.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf

_OPTION = "auto_mixed_precision_onednn_bfloat16"
_INSTRUCTIONS = {"avx512_bf16", "amx_bf16"}
# Operations that TensorFlow would change, too, and that take longer in bfloat16. It reads them once.
_PREFIX = "TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_"
_DEPTHWISE = ["DepthwiseConv2dNative", "_FusedDepthwiseConv2dNative"]
_DEPTHWISE += [f"DepthwiseConv2dNativeBackprop{what}" for what in ("Input", "Filter")]
_WITH_GRADIENT = ["AvgPool", "AvgPool3D", "BiasAdd", "Elu", "LeakyRelu", "Relu", "Relu6", "Selu", "Sigmoid"]
_WITH_GRADIENT += ["Softplus", "Softsign", "Tanh", "FusedBatchNorm"]
_ELEMENTWISE = (
    "Add AddN AddV2 BiasAddV1 Erf Erfc Exp Expm1 Inv Log Log1p LogSoftmax Mean Mul Pow Prod RealDiv"
)
_ELEMENTWISE += " Reciprocal Rsqrt Softmax Sqrt Square SquaredDifference Sub Sum _FusedBatchNormEx"
_ELEMENTWISE += " FusedBatchNormV2 FusedBatchNormV3 FusedBatchNormGradV2 FusedBatchNormGradV3"


def keras_policy(precision: str) -> str:
    """Keras's dtype policy for a captioner that is trained with this `training.precision`."""
    return "float32" if _on_processor(precision) else precision


@contextlib.contextmanager
def products(precision: str, cpuinfo: str | Path = "/proc/cpuinfo") -> Iterator[bool]:
    """With `mixed_bfloat16` on a processor that multiplies bfloat16: functions of TensorFlow do so inside.

    Args:
        precision: `training.precision`.
        cpuinfo: lists the processor's instructions, as on Linux; x86 only.

    Yields:
        Whether they do. Sums, weights and everything but matrix products and convolutions stay float32.

    Examples:
        >>> with products("float32") as changed:
        ...     changed
        False
    """
    if not _on_processor(precision) or not _has_instructions(cpuinfo):
        yield False
        return
    elementwise = [*_WITH_GRADIENT, *(f"{name}Grad" for name in _WITH_GRADIENT), *_ELEMENTWISE.split()]
    os.environ.setdefault(f"{_PREFIX}ALLOWLIST_REMOVE", ",".join(_DEPTHWISE))
    os.environ.setdefault(f"{_PREFIX}INFERLIST_REMOVE", ",".join(elementwise))
    before = tf.config.optimizer.get_experimental_options().get(_OPTION, False)
    tf.config.optimizer.set_experimental_options({_OPTION: True})
    try:
        yield True
    finally:
        tf.config.optimizer.set_experimental_options({_OPTION: before})


def _on_processor(precision: str) -> bool:
    return precision == "mixed_bfloat16" and not tf.config.list_logical_devices("GPU")


def _has_instructions(cpuinfo: str | Path) -> bool:
    try:
        lines = Path(cpuinfo).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    return any(_INSTRUCTIONS & set(line.split()) for line in lines if line.startswith("flags"))
