"""Image captioners, pruned while they train, in sparse TensorFlow Lite files.

import tfsparsecap as sc

model = sc.prune(model, sc.Supermask(sparsity=0.9, total_steps=10_000))   # then compile and fit as ever
model = sc.strip_pruning(model)                                           # stock Keras again
"""

import importlib
import os
import sys

#: Public name -> the module that it comes from.
_PUBLIC = {
    "Gradual": "tfsparsecap.pruning",
    "L1Pruning": "tfsparsecap.pruning",
    "L2Pruning": "tfsparsecap.pruning",
    "LotteryTicket": "tfsparsecap.pruning",
    "Magnitude": "tfsparsecap.pruning",
    "ObjectRelationTransformer": "tfsparsecap.models",
    "PruningMethod": "tfsparsecap.pruning",
    "Relevance": "tfsparsecap.pruning",
    "SNIP": "tfsparsecap.pruning",
    "SoftAttention": "tfsparsecap.models",
    "Supermask": "tfsparsecap.pruning",
    "SupermaskLoss": "tfsparsecap.pruning",
    "UpDown": "tfsparsecap.models",
    "gates": "tfsparsecap.gates",
    "layers": "tfsparsecap.layers",
    "prune": "tfsparsecap.pruning",
    "strip_pruning": "tfsparsecap.pruning",
    "summary": "tfsparsecap.summary.summary",
}
__all__ = sorted(_PUBLIC)


def _load() -> None:
    """Imports everything public; Keras then also knows the classes in saved files."""
    try:
        import keras
    except ImportError as error:  # the backend that is set may not even be installed
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
    for name, module in _PUBLIC.items():
        loaded = importlib.import_module(module)
        globals()[name] = loaded if module == f"{__name__}.{name}" else getattr(loaded, name)


def _is_a_command() -> bool:
    """Whether Python runs one of our commands: they read their arguments before Keras takes its seconds."""
    if os.path.basename(sys.argv[0]) == "tfsparsecap-export":
        return True
    started = sys.orig_argv[sys.orig_argv.index("-m") + 1 :] if "-m" in sys.orig_argv else []
    return bool(started) and started[0].split(".")[0] in {"tfsparsecap", "tfsparsecap_export"}


def __getattr__(name: str):
    if name in _PUBLIC:
        _load()
        return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__


if not _is_a_command():
    _load()
