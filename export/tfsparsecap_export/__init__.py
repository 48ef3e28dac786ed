"""Export of Keras models to TensorFlow Lite files that are small and fast thanks to sparse weights."""

import importlib
from typing import Any

_MODULES = {
    "CaptionOptions": "caption_files.export_captioner",
    "ExportReport": "export_report",
    "FORMATS": "encode.formats",
    "LayerReport": "encode.encoded_file",
    "check_exportable": "check",
    "export_model": "exporter",
    "model_latency": "measure.model_latency",
    "prune_to_latency": "latency_budget",
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    # Importing TensorFlow takes seconds, and the command lines' --help does not need it.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
