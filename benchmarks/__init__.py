"""Benchmarks, each a command: python -m benchmarks.NAME --help.

TensorFlow's messages at its start, which ignore the log level, would hide what a benchmark says.
"""

import os

_STDERR = os.dup(2)
_NOWHERE = os.open(os.devnull, os.O_WRONLY)
os.dup2(_NOWHERE, 2)
try:
    import tensorflow  # noqa: F401
    import tensorflow_text  # noqa: F401 (prints the same messages again)
finally:
    os.dup2(_STDERR, 2)
    os.close(_STDERR)
    os.close(_NOWHERE)
