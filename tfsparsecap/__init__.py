"""Image captioners that are pruned during training and exported as sparse TensorFlow Lite files.

import tfsparsecap as sc

model = sc.prune(model, sc.Supermask(sparsity=0.9, total_steps=10_000))   # then compile and fit as usual
model = sc.strip_pruning(model)                                           # stock Keras again
print(sc.load("runs/quickstart").generate("photo.jpg")[0])                # a caption
"""

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tfsparsecap_export import export_model as export_model

    from tfsparsecap import gates as gates
    from tfsparsecap import layers as layers
    from tfsparsecap.inference import load as load
    from tfsparsecap.models import Captioner as Captioner
    from tfsparsecap.models import ObjectRelationTransformer as ObjectRelationTransformer
    from tfsparsecap.models import SoftAttention as SoftAttention
    from tfsparsecap.models import UpDown as UpDown
    from tfsparsecap.pruning import SNIP as SNIP
    from tfsparsecap.pruning import FrozenMask as FrozenMask
    from tfsparsecap.pruning import Gradual as Gradual
    from tfsparsecap.pruning import L1Pruning as L1Pruning
    from tfsparsecap.pruning import L2Pruning as L2Pruning
    from tfsparsecap.pruning import LotteryTicket as LotteryTicket
    from tfsparsecap.pruning import Magnitude as Magnitude
    from tfsparsecap.pruning import PruningMethod as PruningMethod
    from tfsparsecap.pruning import Relevance as Relevance
    from tfsparsecap.pruning import Supermask as Supermask
    from tfsparsecap.pruning import SupermaskLoss as SupermaskLoss
    from tfsparsecap.pruning import prune as prune
    from tfsparsecap.pruning import strip_pruning as strip_pruning
    from tfsparsecap.summary.summary import summary as summary

    __version__: str

# Module -> names that it contributes. These modules register their classes with Keras, so that
# `keras.saving.load_model` can read saved models: they are imported together with this package.
_EAGER = {
    "tfsparsecap.pruning": (
        "SNIP FrozenMask Gradual L1Pruning L2Pruning LotteryTicket Magnitude PruningMethod Relevance "
        "Supermask SupermaskLoss prune strip_pruning"
    ),
    "tfsparsecap.models": "Captioner ObjectRelationTransformer SoftAttention UpDown",
    "tfsparsecap.summary.summary": "summary",
    "tfsparsecap": "gates layers",
}
# These are imported when they are first used.
_LAZY = {"load": "tfsparsecap.inference", "export_model": "tfsparsecap_export"}
__all__ = sorted(["__version__", *_LAZY, *" ".join(_EAGER.values()).split()])


def _import_eager() -> None:
    try:
        import keras
    except ImportError as error:  # the configured backend may not be installed
        raise ImportError(
            f"Keras does not start ({error}): set the environment variable KERAS_BACKEND=tensorflow "
            "before Python starts"
        ) from error
    if keras.backend.backend() != "tensorflow":
        raise ImportError(
            f"tfsparsecap needs Keras on TensorFlow, not on {keras.backend.backend()}: set the environment "
            "variable KERAS_BACKEND=tensorflow before Python starts"
        )
    if not keras.__version__.startswith("3."):
        raise ImportError(f"tfsparsecap needs Keras 3, not {keras.__version__}: unset TF_USE_LEGACY_KERAS")
    for module, names in _EAGER.items():
        loaded = importlib.import_module(module)
        globals().update({name: getattr(loaded, name) for name in names.split()})


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("tfsparsecap")
    if name in _LAZY:
        try:
            globals()[name] = getattr(importlib.import_module(_LAZY[name]), name)
        except ModuleNotFoundError as error:
            extra = "export" if name == "export_model" else "captions"
            raise ImportError(
                f"sc.{name} needs {error.name}, which is not installed: pip install 'tfsparsecap[{extra}]'"
            ) from error
    elif name in __all__:
        _import_eager()
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals()[name]


def __dir__() -> list[str]:
    return __all__


def _is_command() -> bool:
    """Whether Python runs one of the command lines: they parse their arguments before they import Keras."""
    if os.path.basename(sys.argv[0]) == "tfsparsecap-export":
        return True
    module = sys.orig_argv[sys.orig_argv.index("-m") + 1 :] if "-m" in sys.orig_argv else []
    return bool(module) and module[0].split(".")[0] in {"tfsparsecap", "tfsparsecap_export"}


if not _is_command():
    _import_eager()
