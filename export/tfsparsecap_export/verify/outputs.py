"""The check before a file is written: on the runtime, its outputs must agree with the Keras model's."""

import collections
import dataclasses
import hashlib
import importlib.metadata
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfsparsecap.core.keras_internals import layer_scopes
from tfsparsecap.core.litert import signature_runner
from tfsparsecap.core.model_call import ModelCall
from tfsparsecap.errors import InputError, first_line
from tfsparsecap_export.keras_to_tflite.graph import DEFAULT_SIGNATURE
from tfsparsecap_export.samples import Sample

#: Outputs of this size next to smaller ones are masks, such as -1e9, and do not set the scale of the others.
_MASK = 1e8
#: Infinite constants become this number in files.
_LARGEST_FLOAT = float(np.finfo(np.float32).max)


class Differences:
    """Differences between outputs, relative to the largest output of each sample."""

    def __init__(self) -> None:
        self.largest = self._squared_error = self._squared = 0.0

    def add(self, output: np.ndarray, expected: np.ndarray) -> None:
        """Adds an output of one sample; infinite values must be the same in both."""
        output, expected = np.broadcast_arrays(_with_infinity(output), _with_infinity(expected))
        finite = np.isfinite(output) & np.isfinite(expected)
        if (output != expected)[~finite].any():
            self.largest = self._squared_error = math.inf
        output, expected = output[finite], expected[finite]
        masks = np.abs(expected) >= _MASK
        if masks.all():
            masks = ~masks
        for group in (masks, ~masks):
            scale = max(1e-6, float(np.abs(expected[group]).max(initial=0)))
            relative = np.abs(output[group] - expected[group]) / scale
            self.largest = max(self.largest, float(relative.max(initial=0)))
            self._squared_error += float(np.square(relative).sum())
        self._squared += float(np.square(expected[~masks] / scale).sum())  # masks would hide differences

    def merge(self, other: "Differences") -> None:
        """Adds the differences of other outputs."""
        self.largest = max(self.largest, other.largest)
        self._squared_error += other._squared_error
        self._squared += other._squared

    @property
    def rms(self) -> float:
        """Root mean square, relative to that of the outputs."""
        return (self._squared_error / self._squared) ** 0.5 if self._squared else 0.0


class IntegerDifferences(Differences):
    """Differences between outputs that are integers, which may be numbers or classes, such as of `argmax`.

    They count as classes if the fraction of the positions that differ is smaller than the differences of the
    numbers: one class is not larger than another.

    Attributes:
        positions: number of integers.
        same: how many of them are equal.
    """

    positions = same = 0

    def add(self, output: np.ndarray, expected: np.ndarray) -> None:
        """Adds an output of one sample."""
        super().add(output, expected)
        equal = np.equal(output, expected)
        self.positions += equal.size
        self.same += int(equal.sum())

    @property
    def different(self) -> float:
        """Fraction of the positions that differ."""
        return (self.positions - self.same) / self.positions if self.positions else 0.0

    @property
    def are_classes(self) -> bool:
        """Whether they count as classes."""
        return self.different < self.largest


def _with_infinity(values: np.ndarray) -> np.ndarray:
    """The values as float64, with infinity for the largest float32; two for each complex number."""
    parts = np.stack([values.real, values.imag]) if np.iscomplexobj(values) else values
    values = parts.astype(np.float64)
    return np.where(np.abs(values) >= _LARGEST_FLOAT, np.copysign(np.inf, values), values)


#: Largest differences between the outputs of a file and of the model, relative to the largest output of the
#: same input: with float32 weights, with weights that are rounded to float16, and with int8 weights.
#: The probabilities of a trained MobileNet-V1 0.75 differ by up to 0.019 with float16, and 0.15 with int8.
OUTPUT_ERROR, ROUNDED_OUTPUT_ERROR, INT8_OUTPUT_ERROR = 0.01, 0.05, 0.3
#: Largest root mean square of the differences with int8, relative to that of the outputs. Probabilities are
#: compared before the softmax: for the same network 0.02 with int8 weights and 0.06 with int8 activations.
INT8_RMS_ERROR = 0.1
#: Smallest fraction of the samples whose most probable class is the same with int8; one may always differ. Of
#: photographs whose subjects the same network does not know, 0.9 keep their class with int8 activations.
INT8_SAME_CLASS = 0.85
#: Number of samples that also run without the XNNPACK delegate, whose kernels take several times as long.
_PLAIN_RUNS = 4
#: Bytes of outputs that are kept.
_MOST_KEPT = 256 << 20
#: Probabilities below this one count as this one.
_SMALLEST_PROBABILITY = 1e-7


@dataclasses.dataclass(frozen=True)
class Verification:
    """The result of the check.

    Attributes:
        samples: number of inputs.
        source: where the inputs come from.
        error: largest difference between the file's and the Keras model's outputs, relative to the largest
            output, or the fraction of the classes that differ in an output of integers.
        runtime: what the file ran on.
        rms_error: root mean square of the differences, relative to that of the outputs; of the output for
            which it is largest.
        same_class: fraction of the inputs, or of their positions, whose most probable class is the Keras
            model's, in the output for which it is smallest; None without probabilities or classes that
            differ.
        logits_error: like `rms_error`, with probabilities compared before the softmax.
    """

    samples: int
    source: str
    error: float
    runtime: str
    rms_error: float = 0.0
    same_class: float | None = None
    logits_error: float = 0.0

    def sentence(self) -> str:
        """What was compared, and how large the differences are."""
        compared = (
            f"{self._compared()} outputs differ by at most {self.error:.2%} of the largest output, and by"
        )
        text = f"{compared} {self.rms_error:.2%} in the mean (root mean square)."
        if self.same_class is None:
            return text
        return f"{text} The most probable class is the same for {self.same_class:.1%}."

    def _compared(self) -> str:
        return f"Compared with the Keras model on {self.runtime} with {self.samples} inputs ({self.source}):"


class Differs(InputError):
    """The file gives other results than the Keras model."""


class OutputsDiffer(Differs):
    """The file's outputs differ from the Keras model's by a fraction `error` of `what`."""

    def __init__(self, error: float, what: str) -> None:
        self.difference = f"{error:.1%} of {what}" if math.isfinite(error) else "infinite values"
        super().__init__(
            f"the outputs of the exported file differ from the Keras model's by {self.difference}: nothing"
            " was written; try another format"
        )


class DoesNotRun(Differs):
    """The runtime fails to load a file, or for an input; `reason` is its message."""

    def __init__(self, error: Exception, what: str = "run") -> None:
        self.reason = first_line(error)
        super().__init__(
            f"the runtime does not {what} the exported file ({self.reason}): nothing was written; try another"
            " format"
        )


def check_deterministic(name: str, call: Callable[[], Any]) -> None:
    """Raises InputError if outputs are text, or differ for the same input: then they cannot be compared.

    Args:
        name: of the model, for messages.
        call: calls it with the same inputs each time.
    """
    runs = [call() for _ in range(2)]
    for first, second in zip(*map(tf.nest.flatten, runs), strict=True):
        if getattr(first, "dtype", None) == tf.string:  # a Python number has no dtype
            raise InputError(
                f"an output of {name} is text, which files do not return: export the part of the model in"
                " front of its text layers"
            )
        first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
        if np.isnan(first).any():
            raise InputError(
                f"{name} returns NaN for these inputs, so nothing can be compared: give inputs= or samples="
                " like those of training"
            )
        # The order in which threads add numbers varies, which changes the last digits.
        scale = max(1e-6, float(np.abs(first[np.isfinite(first)]).max(initial=0)))
        if not np.allclose(first, second, rtol=0, atol=1e-4 * scale):
            raise InputError(
                f"{name} gives different outputs for the same input: export a model without layers that are"
                " random at inference or keep a state between calls"
            )


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


class _Compared:
    """One output: its differences, and how many of its most probable classes are the same.

    Attributes:
        differences, scores: of the output, and of the output in front of its softmax.
        integers: of an output of integers.
        classes, same: numbers of classes, and of those that are equal.
    """

    def __init__(self) -> None:
        self.differences, self.scores, self.integers = Differences(), Differences(), IntegerDifferences()
        self.classes = self.same = 0

    def add(self, output: np.ndarray, expected: np.ndarray) -> None:
        """Adds the output for one sample."""
        if expected.dtype.kind in "biu":
            self.integers.add(output, expected)
            return
        self.differences.add(output, expected)
        if are_probabilities(expected):
            best = expected.argmax(axis=-1)
            self.classes += best.size
            self.same += int((output.argmax(axis=-1) == best).sum())
            output, expected = logits(output), logits(expected)
        self.scores.add(output, expected)

    def finish(self) -> None:
        """Counts integers as classes or as numbers, after all samples."""
        if self.integers.are_classes:
            self.classes, self.same = self.integers.positions, self.integers.same
            self.differences.largest = self.integers.different
        else:
            self.differences.merge(self.integers)
            self.scores.merge(self.integers)


def are_probabilities(values: np.ndarray) -> bool:
    """Whether the last axis contains the results of a softmax."""
    if values.ndim < 2 or values.shape[-1] < 2 or not np.issubdtype(values.dtype, np.floating):
        return False
    return bool((values >= 0).all() and np.allclose(values.sum(axis=-1), 1, atol=1e-3))


def logits(probabilities: np.ndarray) -> np.ndarray:
    """What a softmax gives these probabilities for, with a mean of 0."""
    logs = np.log(np.maximum(probabilities, _SMALLEST_PROBABILITY))
    return logs - logs.mean(axis=-1, keepdims=True)


def verify_outputs(
    call: ModelCall | ExpectedOutputs,
    content: bytes,
    samples: Sequence[Sample],
    *,
    all_float: bool,
    rounded: bool = False,
    source: str = "given inputs",
) -> Verification:
    """Compares all outputs of a file with those of the Keras model that it was made from.

    Args:
        call: the Keras model. `ExpectedOutputs` save time if several files of it are compared.
        content: the bytes of the .tflite file.
        samples: inputs.
        all_float: whether all weights in the file are floating point numbers.
        rounded: whether weights are rounded to float16.
        source: where the inputs come from, for the report.

    Raises:
        InputError: the file does not load or returns NaN.
        DoesNotRun: the runtime fails.
        OutputsDiffer: an output differs too much from the model's.
    """
    model = call if isinstance(call, ExpectedOutputs) else ExpectedOutputs(call)
    options = hashlib.sha256(content).digest(), id(samples), all_float, rounded
    if options in model.verified:
        return dataclasses.replace(model.verified[options][1], source=source)
    compared: dict[str, _Compared] = collections.defaultdict(_Compared)
    runs = runners(content, DEFAULT_SIGNATURE)
    for number, sample in enumerate(samples):
        expected = model(sample)
        for name, values in expected.items():
            if np.isnan(values).any():
                raise InputError(
                    f"the output {name} of the model is NaN for sample {number}: give samples like those of"
                    " training"
                )
        try:
            results = [run(**sample) for run in (runs if number < _PLAIN_RUNS else runs[:1])]
        except RuntimeError as error:
            raise DoesNotRun(error) from error
        for outputs in results:
            for name, values in expected.items():
                output = outputs[name]
                if np.isnan(output).any():
                    raise InputError("the exported file returns NaN: nothing was written; try another format")
                compared[name].add(output, values)
    limit = ROUNDED_OUTPUT_ERROR if rounded else OUTPUT_ERROR
    for name, one in compared.items():
        one.finish()
        of_name = f" ({name})" if len(compared) > 1 else ""
        if all_float:
            if one.classes and one.integers.different > limit:
                raise OutputsDiffer(one.integers.different, f"the integers of {name}")
            if not one.differences.largest <= limit:  # neither does NaN pass
                raise OutputsDiffer(one.differences.largest, f"the largest output{of_name}")
        elif not one.scores.largest <= INT8_OUTPUT_ERROR:
            raise OutputsDiffer(one.scores.largest, f"the largest output{of_name}")
        elif not one.scores.rms <= INT8_RMS_ERROR:
            raise OutputsDiffer(one.scores.rms, f"the root mean square of the outputs{of_name}")
        elif one.classes - one.same > max(len(runs), (1 - INT8_SAME_CLASS) * one.classes):
            raise OutputsDiffer(1 - one.same / one.classes, f"the most probable classes{of_name}")
    verification = Verification(
        samples=len(samples),
        source=source,
        error=max((one.differences.largest for one in compared.values()), default=0.0),
        runtime=runtime_name(),
        rms_error=max((one.differences.rms for one in compared.values()), default=0.0),
        same_class=min((one.same / one.classes for one in compared.values() if one.classes), default=None),
        logits_error=max((one.scores.rms for one in compared.values()), default=0.0),
    )
    model.verified[options] = samples, verification
    return verification


def runtime_name() -> str:
    """The runtime that files are checked on, with its version."""
    return f"LiteRT {importlib.metadata.version('ai-edge-litert')}"


def runners(content: bytes, signature: str) -> list:
    """Functions that run a file with the XNNPACK delegate, which is the default, and without it."""
    from ai_edge_litert.interpreter import OpResolverType

    try:
        return [
            signature_runner(content, signature, experimental_op_resolver_type=resolver)
            for resolver in (OpResolverType.AUTO, OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
        ]
    except (ValueError, RuntimeError) as error:
        raise DoesNotRun(error, "load") from error
