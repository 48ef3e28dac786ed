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

__all__ = [
    "SNIP", "Captioner", "FrozenMask", "Gradual", "L1Pruning", "L2Pruning", "LotteryTicket", "Magnitude",
    "ObjectRelationTransformer", "PruningMethod", "Relevance", "Schedule", "Slim", "SoftAttention",
    "Supermask", "SupermaskLoss", "Transformer", "UpDown", "__version__", "check_exportable", "export_model",
    "gates", "layers", "load", "prune", "regularize_gammas", "slim", "slim_plan", "strip_pruning", "summary",
]  # fmt: skip

# Imported when they are first used: name -> module, and the extra that installs what the module needs.
_LAZY = {
    "load": ("tfsparsecap.captioning.inference", "export"),
    "check_exportable": ("tfsparsecap_export", "export"),
    "export_model": ("tfsparsecap_export", "export"),
}

# Names of tensorflow-model-optimization, and what has their place here.
_OF_TFMOT = {
    "prune_low_magnitude": "sc.prune(model, sc.Gradual(0.8, total_steps=steps))",
    "PolynomialDecay": "sc.Gradual(0.8, total_steps=steps, schedule=sc.Schedule(begin=0, end=1000))",
    "ConstantSparsity": "sc.Gradual(0.8, total_steps=steps, schedule=sc.Schedule(constant=True))",
    "UpdatePruningStep": "no callback: the optimizer of a pruned model updates the gates",
    "PruningSummaries": "no callback: the logs of fit have the sparsity",
    "prune_scope": "no scope: keras.models.load_model reads pruned models",
}


def _check_keras() -> None:
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


def _is_command() -> bool:
    """Whether Python runs one of the command lines: they parse their arguments before they import Keras."""
    if os.path.basename(sys.argv[0]) == "tfsparsecap-export":
        return True
    module = sys.orig_argv[sys.orig_argv.index("-m") + 1 :] if "-m" in sys.orig_argv else []
    return bool(module) and module[0].split(".")[0] in {"tfsparsecap", "tfsparsecap_export"}


if not _is_command():
    _check_keras()
    # These register their classes with Keras, so that `keras.saving.load_model` can read saved models.
    from tfsparsecap import gates, layers
    from tfsparsecap.captioning.models import (
        Captioner,
        ObjectRelationTransformer,
        SoftAttention,
        Transformer,
        UpDown,
    )
    from tfsparsecap.model_summary.summarize import summary
    from tfsparsecap.pruning import (
        SNIP,
        FrozenMask,
        Gradual,
        L1Pruning,
        L2Pruning,
        LotteryTicket,
        Magnitude,
        PruningMethod,
        Relevance,
        Schedule,
        Supermask,
        SupermaskLoss,
    )
    from tfsparsecap.pruning.apply import prune, strip_pruning
    from tfsparsecap.slimming.iterative import Slim, regularize_gammas
    from tfsparsecap.slimming.plan import slim, slim_plan

if TYPE_CHECKING:
    from tfsparsecap_export import check_exportable, export_model

    from tfsparsecap.captioning.inference import load

    __version__: str


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("tfsparsecap")
    if name in _OF_TFMOT:
        raise AttributeError(
            f"{name} is of tensorflow-model-optimization: here, it is {_OF_TFMOT[name]} (see the guide"
            " Coming from tensorflow-model-optimization)"
        )
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, extra = _LAZY[name]
    try:
        globals()[name] = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        from tfsparsecap.core.installation import pip_install

        raise ImportError(
            f"sc.{name} needs {error.name}, which is not installed: {pip_install(extra)}"
        ) from error
    return globals()[name]


def __dir__() -> list[str]:
    return __all__
