"""What the TensorFlow Lite runtime lacks: operations of a model, and the layers that use them."""

import errno
import os
import re
import tempfile
from collections.abc import Iterable

import keras
import tensorflow as tf

from tfsparsecap.core.keras_internals import nested_layers
from tfsparsecap.errors import InputError, first_line

#: What TensorFlow's messages say about a full disk, a quota or a limit of the size of files.
_NO_SPACE = tuple(os.strerror(code) for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
#: An operation without a kernel in a message of the converter.
_MISSING = re.compile(r"tf\.[A-Z]\w+")
#: The same with the place in the graph: `fused["FFT:", "model/layer/FFT@…"] … 'tf.FFT' op is neither`.
_PLACED = re.compile(r"error: loc\([^\n]*?fused\[\"[^\"]*\", \"([^\"@]+)[^\n]*?'(tf\.\w+)' op is neither")


def explanation(message: str, model: keras.Model) -> str:
    """What a message of the converter says about operations that are missing, or an empty text.

    Examples:
        >>> explanation("'tf.FFT' op is neither a custom op nor a flex op", keras.Sequential())
        'TFLite does not support tf.FFT: replace the layer of the model that uses it'
    """
    names = sorted(set(_MISSING.findall(message)))
    layers = _layers((place for place, _ in _PLACED.findall(message)), model)
    if not names:
        return ""
    where = f"{' and '.join(layers)} of {model.name}" if layers else "the layer of the model that uses it"
    return f"TFLite does not support {', '.join(names)}: replace {where}"


def refusal(error: Exception, model: keras.Model) -> str:
    """What to say about an error of the converter that `explanation` says nothing about.

    Examples:
        >>> refusal(ValueError("loc(1): error: no rank"), keras.Sequential(name="net")).split(":")[0]
        'TensorFlow cannot convert net to TFLite (no rank)'
    """
    if any(reason in str(error) for reason in _NO_SPACE):
        return (
            f"the disk of temporary files is full ({tempfile.gettempdir()}): free some space there, or set"
            " TMPDIR to a folder on another disk"
        )
    reason = first_line(error).split("error: ")[-1]
    return (
        f"TensorFlow cannot convert {model.name} to TFLite ({reason}): replace the operation of the model"
        " that the message names, or export the part of the model without it"
    )


def check_operations(graph: tf.Graph, model: keras.Model) -> None:
    """Raises InputError if a graph looks up values in tables, which cannot become constants."""
    tables = [one for one in graph.get_operations() if one.type.startswith("LookupTable")]
    if tables:
        layers = _layers((one.name for one in tables), model)
        where = f" in {' and '.join(layers)}" if layers else ""
        raise InputError(
            f"{model.name} looks up words or numbers in a table{where}, which TFLite does not support: export"
            " the part of the model behind it"
        )


def _layers(places: Iterable[str], model: keras.Model) -> list[str]:
    """The innermost layers of places in a graph, in the order in which they appear."""
    known = {layer.name for layer in nested_layers(model, include_self=False)}
    found = []
    for place in places:
        for part in reversed(place.split("/")[:-1]):
            # TensorFlow numbers equal names.
            name = part if part in known else re.sub(r"_\d+$", "", part)
            if name in known:
                found.append(name)
                break
    return list(dict.fromkeys(found))
