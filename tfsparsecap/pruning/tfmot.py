"""The one place that imports tensorflow-model-optimization."""

import contextlib
import importlib
import os
from types import ModuleType

from tfsparsecap.errors import InputError

_LEGACY = "TF_USE_LEGACY_KERAS"
_PACKAGE = "tensorflow_model_optimization.python.core.sparsity.keras"


def load() -> tuple[ModuleType, ModuleType]:
    """Its schedules and its mask update, as modules `(pruning_schedule, pruning_impl)`.

    Importing it has TensorFlow give Keras 2 to whatever is imported later, by an environment variable that
    child processes would get, too (it is put back), and in this process for good. keras-cv, which augments
    pictures, would break by that: it is imported before.

    Raises:
        InputError: the package is not installed.
    """
    with contextlib.suppress(ImportError):
        importlib.import_module("keras_cv")
    before = os.environ.get(_LEGACY)
    try:
        return tuple(
            importlib.import_module(f"{_PACKAGE}.{name}") for name in ("pruning_schedule", "pruning_impl")
        )
    except ImportError as error:
        raise InputError(
            "gradual pruning needs tensorflow-model-optimization, which is not installed: pip install"
            " 'tfsparsecap[baselines]'"
        ) from error
    finally:
        if before is None:
            os.environ.pop(_LEGACY, None)
        else:
            os.environ[_LEGACY] = before
