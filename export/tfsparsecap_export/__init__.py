"""From Keras models to TensorFlow Lite files that are small and fast because their weights are sparse."""

__all__ = ["FORMATS", "ExportReport", "LayerReport", "export_model"]

FORMATS = ("auto", "int8", "fast", "compact", "dense", "dense-int8")


def __getattr__(name: str):
    # TensorFlow takes seconds to import; the command lines' --help does without.
    if name not in __all__:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    from tfsparsecap_export import exporter, report

    return getattr(exporter if name == "export_model" else report, name)
