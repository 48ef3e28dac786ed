"""Reading and changing the FlatBuffer of a .tflite file.

A .tflite file is one FlatBuffer: graphs of operators, tensors, and the buffers of constants. `model_file`
reads it into objects of TensorFlow Lite's own schema and writes them again; damaged and hostile files are
refused in one sentence. With these objects the exporter replaces weights, adds operators that expand them,
and joins files. `compact` then drops what nothing uses, stores equal constants once, and names tensors.

`contents` says what a file contains without running it, for people and for checks: signatures, operators,
and each constant with its type, zeros and bytes, in any of the encodings that runtimes know (`stored`).
"""
