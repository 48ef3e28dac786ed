"""Export of Keras models to TensorFlow Lite files that are small and fast thanks to sparse weights.

`export_model` (in `exporter`) converts a model (`keras_to_tflite`), stores each weight in the encoding that
suits its zeros and the processor (`encode`), compares the file with the model (`verify`), and writes it.
`export_network` and, for captioners, `caption_files` say in which order. `flatbuffer` reads and changes
files, `latency` and `timing` time them; `latency` also makes a model that is fast enough.
"""

import importlib
from typing import Any

_MODULES = {
    "CaptionOptions": "caption_files.export_captioner",
    "ExportReport": "export_report",
    "FORMATS": "encode.formats",
    "LayerReport": "encode.encoded_file",
    "check_exportable": "exporter",
    "export_model": "exporter",
    "model_latency": "latency",
    "prune_to_latency": "latency",
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    # Importing TensorFlow takes seconds, and the command lines' --help does not need it.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
