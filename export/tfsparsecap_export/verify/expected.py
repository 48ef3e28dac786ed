"""The outputs of the Keras model that those of files are compared with."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfsparsecap.core.keras_internals import layer_scopes
from tfsparsecap_export.samples import Sample

#: Bytes of outputs that are kept.
_MOST_KEPT = 256 << 20
#: Probabilities below this one count as this one.
_SMALLEST_PROBABILITY = 1e-7


class ExpectedOutputs:
    """The outputs of a Keras model, which are computed once for several calls of `verify_outputs`.

    Args:
        call: gives the outputs for a sample; the weights must stay the same.
    """

    def __init__(self, call: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
        self._call = call
        self._compiled = tf.function(self._traced, autograph=False)
        self._kept: dict[int, tuple[Sample, dict[str, np.ndarray]]] = {}
        self._bytes = 0
        #: Results by file, samples, and options.
        self.verified: dict[tuple, tuple[Sequence[Sample], Any]] = {}

    def _traced(self, tensors: Mapping[str, Any]) -> Mapping[str, Any]:
        with layer_scopes():  # with any names of layers
            return self._call(tensors)

    def __call__(self, sample: Sample) -> dict[str, np.ndarray]:
        """The outputs for a sample by name."""
        if id(sample) in self._kept:
            return self._kept[id(sample)][1]
        # The first call is not compiled, so that it is independent of the conversion, which compiles too.
        call = self._compiled if self._kept else self._call
        outputs = {name: np.asarray(output) for name, output in call(sample).items()}
        self._bytes += sum(output.nbytes for output in outputs.values())
        if self._bytes <= _MOST_KEPT or not self._kept:
            self._kept[id(sample)] = (sample, outputs)
        return outputs


def are_probabilities(values: np.ndarray) -> bool:
    """Whether the last axis contains the results of a softmax."""
    if values.ndim < 2 or values.shape[-1] < 2 or not np.issubdtype(values.dtype, np.floating):
        return False
    return bool((values >= 0).all() and np.allclose(values.sum(axis=-1), 1, atol=1e-3))


def logits(probabilities: np.ndarray) -> np.ndarray:
    """What a softmax gives these probabilities for, with a mean of 0."""
    logs = np.log(np.maximum(probabilities, _SMALLEST_PROBABILITY))
    return logs - logs.mean(axis=-1, keepdims=True)
