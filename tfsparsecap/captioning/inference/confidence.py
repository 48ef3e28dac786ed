"""How sure a captioner is: the probability that a caption is good, and the objects probably in an image.

The confidence of captions is calibrated on those of a validation split.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tfsparsecap.captioning.metrics.tokenize import light_tokenize
from tfsparsecap.captioning.search.search_options import FUNCTION_WORDS
from tfsparsecap.errors import InputError

#: Below this confidence the app and the command line say that they are not sure.
NOT_SURE = 0.5
#: Validation images that a confidence needs: with fewer, it says more about them than about captions.
FEWEST_IMAGES = 50
_STEPS = 100
#: Of the scores, relative to their mean; below it they say nothing.
_LEAST_SPREAD = 1e-3
# Far above any calibration; larger values overflow. Files of earlier versions lack the last three.
_LARGEST = {
    "slope": 1e6,
    "intercept": 1e6,
    "length_penalty": 10.0,
    "objects": 1e6,
    "object_count": 1e6,
    "tokens": 1e6,
}
_OPTIONAL = ("objects", "object_count", "tokens")
#: Weights that must not be negative: neither a higher score nor a sure object counts against a caption.
_POSITIVE = ("slope", "objects")


@dataclass(frozen=True)
class Calibration:
    """A logistic function that gives the probability that a caption is good.

    Attributes:
        slope, objects, object_count, tokens, intercept: the logarithm of the odds is
            `slope * score / length ** length_penalty + objects * max(probabilities)
            + object_count * sum(probabilities) + tokens * length + intercept`, where the probabilities are
            those of the objects. `object_count` and `tokens` are usually negative: busy images and long
            captions are harder.
        length_penalty: exponent; 0 for the sum of the log-probabilities, 1 for their mean.
        images: number of validation images that it was fitted on.
        good: share of them with a good caption, 0 to 1.
    """

    slope: float
    intercept: float
    length_penalty: float = 0.7  # separates good captions best, see docs/objects.md
    images: int = 0
    good: float = 0.0
    objects: float = 0.0
    object_count: float = 0.0
    tokens: float = 0.0

    @classmethod
    def fit(
        cls,
        scores: Sequence[float],
        lengths: Sequence[int],
        good: Sequence[bool],
        probabilities: Sequence[Sequence[float] | np.ndarray] | np.ndarray = (),
    ) -> "Calibration":
        """Fits the weights and the intercept by maximum likelihood.

        Good captions count as slightly less than certainly good, and others as slightly better than certainly
        bad (Platt, Probabilistic outputs for support vector machines, 1999), so that the fit exists even if
        all captions are good. If high scores do not mean good captions, the slope is 0, and so is `objects`
        if sure objects do not. The weight of what is nearly the same for all captions is 0.

        Args:
            scores: sums of log-probabilities, one for each image, at least one.
            lengths: numbers of tokens, the end token included.
            good: whether the captions are good.
            probabilities: of the objects in each image, 0 to 1, [images, K]; empty without objects.

        Examples:
            >>> good = [True, True, False, False]
            >>> calibration = Calibration.fit([-5.0, -6.0, -20.0, -22.0], [8, 8, 8, 8], good)
            >>> calibration.probability(-5.0, 8) > 0.7 > 0.3 > calibration.probability(-22.0, 8)
            True
        """
        columns = {
            "slope": np.asarray(scores, float) / np.asarray(lengths, float) ** cls.length_penalty,
            "tokens": np.asarray(lengths, float),
        }
        objects = np.asarray(probabilities, float)
        if objects.size:
            columns["objects"] = objects.max(1)
        if objects.size > len(objects):  # of a single object, the sum says the same
            columns["object_count"] = objects.sum(1)
        is_good, count = np.asarray(good, bool), len(good)
        positive = int(is_good.sum())
        targets = np.where(is_good, (positive + 1) / (positive + 2), 1 / (count - positive + 2))
        # Rounding makes a standard deviation of equal scores, and a slope as large as its inverse.
        columns = {
            name: column
            for name, column in columns.items()
            if column.std() > _LEAST_SPREAD * max(1.0, abs(column.mean()))
        }
        while True:
            *weights, intercept = _newton(np.reshape([*columns.values()], (-1, count)).T, targets)
            fitted = dict(zip(columns, weights, strict=True))
            worst = min(_POSITIVE, key=lambda name: fitted.get(name, math.inf))
            if fitted.get(worst, math.inf) > 0:
                slope = fitted.pop("slope", 0.0)
                return cls(slope, intercept, images=count, good=positive / count, **fitted)
            del columns[worst]

    def probability(
        self, score: float, length: int, probabilities: Sequence[float] | np.ndarray = ()
    ) -> float:
        """The probability that a caption is good, 0 to 1.

        Args:
            score: sum of the log-probabilities.
            length: number of tokens, the end token included.
            probabilities: of the objects in the image; empty for a captioner without objects.
        """
        odds = self.slope * score / length**self.length_penalty + self.tokens * length + self.intercept
        if len(probabilities):
            odds += self.objects * np.max(probabilities) + self.object_count * np.sum(probabilities)
        return float(1 / (1 + math.exp(-max(-700.0, min(700.0, odds)))))

    @classmethod
    def from_description(cls, description: dict[str, Any]) -> "Calibration | None":
        """The entry `confidence` of a file's description; None if the file has none.

        Raises:
            InputError: the entry is damaged.
        """
        entry = description.get("confidence")
        if entry is None:
            return None
        values = {**dict.fromkeys(_OPTIONAL, 0.0), **entry} if isinstance(entry, dict) else {}
        if not all(_is_number(values.get(name), largest) for name, largest in _LARGEST.items()):
            raise InputError("the confidence of the file has no slope and intercept: export the run again")
        weights: dict[str, Any] = {name: float(values[name]) for name in _LARGEST}
        return cls(**weights)

    def as_dict(self) -> dict[str, float | int]:
        """For `captioner.json`."""
        return asdict(self)


def _is_number(value: Any, largest: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= largest


def _newton(values: np.ndarray, targets: np.ndarray) -> list[float]:
    """Weights of the columns and the intercept of the logistic regression of targets, by Newton's method.

    Args:
        values: [N, K].
        targets: 0 to 1, [N].
    """
    centre, width = values.mean(0), values.std(0)
    inputs = np.column_stack([(values - centre) / width, np.ones(len(values))])

    def loss(weights: np.ndarray) -> float:
        odds = inputs @ weights
        return float(np.sum(np.logaddexp(0, odds) - targets * odds))

    weights = np.zeros(inputs.shape[1])
    for _ in range(_STEPS):
        probabilities = 1 / (1 + np.exp(-(inputs @ weights)))
        gradient = inputs.T @ (probabilities - targets)
        curvatures = probabilities * (1 - probabilities)
        hessian = (inputs * curvatures[:, None]).T @ inputs + 1e-9 * np.eye(len(weights))
        step, size = np.linalg.solve(hessian, gradient), 1.0
        while size > 1e-6 and loss(weights - size * step) > loss(weights):
            size /= 2
        weights = weights - size * step
        if np.abs(step).max() < 1e-10:
            break
    slopes = weights[:-1] / width
    return [*map(float, slopes), float(weights[-1] - slopes @ centre)]


def caption_length(token_ids: Sequence[int] | np.ndarray, end_id: int) -> int:
    """Number of tokens up to the end token, which counts; all if there is none."""
    ids = list(token_ids)
    return ids.index(end_id) + 1 if end_id in ids else max(1, len(ids))


def is_good(caption: str, references: Sequence[str], function_words: Sequence[str] = FUNCTION_WORDS) -> bool:
    """Whether people named at least half of what a caption names.

    That is: at least half of its different content words (all but the function words) are in the references.
    A caption without content words is not good.

    Args:
        caption: a generated caption.
        references: captions of the same image by people.
        function_words: of their language, see `SearchOptions`; English by default.

    Examples:
        >>> is_good("a dog runs on the beach", ["A brown dog runs over sand.", "the dog is running"])
        True
    """
    named = set(light_tokenize(caption).split()) - set(function_words)
    reference_words = {word for reference in references for word in light_tokenize(reference).split()}
    return bool(named) and 2 * len(named & reference_words) >= len(named)


def reliability(confidences: Sequence[float], good: Sequence[bool], bins: int = 10) -> dict[str, Any]:
    """How well confidences agree with observed frequencies.

    Args:
        confidences: 0 to 1, one for each caption, at least one.
        good: whether the captions are good.
        bins: groups of equal size, in the order of the confidences.

    Returns:
        `error`: expected calibration error, the mean difference of confidence and share of good captions over
        the groups (Naeini et al., 2015, with groups of equal size); `chance`: what it is on average if the
        confidences are right, because groups are small; `good`: share of good captions; `sure`:
        share of captions whose confidence is at least `NOT_SURE`; `table`: for each group its mean
        confidence, its share of good captions and the number of captions.

    Examples:
        >>> reliability([0.5, 0.5, 1.0, 1.0], [True, False, True, False], bins=2)["error"]
        0.25
    """
    values, outcomes = np.asarray(confidences, float), np.asarray(good, float)
    groups = [group for group in np.array_split(np.argsort(values, kind="stable"), bins) if len(group)]
    table = [(float(values[group].mean()), float(outcomes[group].mean()), len(group)) for group in groups]
    return {
        "error": sum(abs(mean - share) * count for mean, share, count in table) / len(values),
        # The mean of |x| is sqrt(2 / pi) standard deviations of a normal distribution.
        "chance": sum(math.sqrt(2 / math.pi * mean * (1 - mean) * count) for mean, _, count in table)
        / len(values),
        "good": float(outcomes.mean()),
        "sure": float(np.mean(values >= NOT_SURE)),
        "table": table,
    }


#: Objects with at least this probability count as being in the image. Probabilities are trained with plain
#: cross-entropy, so from here on an object is more likely there than not.
LIKELY = 0.5


def likely_objects(
    names: Sequence[str], probabilities: np.ndarray | Sequence[float]
) -> tuple[tuple[str, float], ...]:
    """The objects that are probably in an image, with their probabilities, likeliest first.

    Args:
        names: of K objects.
        probabilities: K values from 0 to 1.

    Examples:
        >>> likely_objects(["cat", "dog", "sofa"], [0.75, 0.1, 0.9])
        (('sofa', 0.9), ('cat', 0.75))
    """
    pairs = zip(names, map(float, probabilities), strict=True)
    return tuple(sorted((pair for pair in pairs if pair[1] >= LIKELY), key=lambda pair: -pair[1]))
