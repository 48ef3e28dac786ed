"""Confidence: the probability that a caption is good, calibrated on the captions of a validation split."""

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
# Far above any calibration; larger values overflow.
_LARGEST: dict[str, float] = {"slope": 1e6, "intercept": 1e6, "length_penalty": 10.0}


@dataclass(frozen=True)
class Calibration:
    """A logistic function from the score of a caption, and what is seen, to the probability that it is good.

    Attributes:
        slope, objects, intercept: the logarithm of the odds is `slope * score / length ** length_penalty +
            objects * likeliest + intercept`, where `likeliest` is the largest probability of an object.
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

    @classmethod
    def fit(
        cls,
        scores: Sequence[float],
        lengths: Sequence[int],
        good: Sequence[bool],
        likeliest: Sequence[float] = (),
    ) -> "Calibration":
        """Fits slope, objects and intercept by maximum likelihood.

        Good captions count as slightly less than certainly good, and others as slightly better than certainly
        bad (Platt, Probabilistic outputs for support vector machines, 1999), so that the fit exists even if
        all captions are good. If high scores do not mean good captions, or all scores are nearly equal, the
        slope is 0; the same holds for the objects.

        Args:
            scores: sums of log-probabilities, one for each image, at least one.
            lengths: numbers of tokens, the end token included.
            good: whether the captions are good.
            likeliest: for each image the largest probability of an object, 0 to 1; empty without objects.

        Examples:
            >>> found = Calibration.fit([-5.0, -6.0, -20.0, -22.0], [8, 8, 8, 8], [True, True, False, False])
            >>> found.probability(-5.0, 8) > 0.7 > 0.3 > found.probability(-22.0, 8)
            True
        """
        values = np.asarray(scores, float) / np.asarray(lengths, float) ** cls.length_penalty
        is_good, count = np.asarray(good, bool), len(values)
        positive = int(is_good.sum())
        targets = np.where(is_good, (positive + 1) / (positive + 2), 1 / (count - positive + 2))
        columns = {"slope": values}
        if len(likeliest):
            columns["objects"] = np.asarray(likeliest, float)
        # Rounding makes a standard deviation of equal scores, and a slope as large as its inverse.
        columns = {
            name: column
            for name, column in columns.items()
            if column.std() > _LEAST_SPREAD * max(1.0, abs(column.mean()))
        }
        while columns:
            *weights, intercept = _newton(np.stack([*columns.values()], 1), targets)
            if min(weights) > 0:
                found = dict(zip(columns, weights, strict=True))
                break
            del columns[list(columns)[int(np.argmin(weights))]]
        else:
            mean = float(targets.mean())
            found, intercept = {}, math.log(mean / (1 - mean))
        return cls(
            found.get("slope", 0.0),
            intercept,
            images=count,
            good=positive / count,
            objects=found.get("objects", 0.0),
        )

    def probability(self, score: float, length: int, likeliest: float = 0.0) -> float:
        """The probability that a caption is good, 0 to 1.

        Args:
            score: sum of the log-probabilities.
            length: number of tokens, the end token included.
            likeliest: the largest probability of an object in the image; 0 for a captioner without objects.
        """
        odds = self.slope * score / length**self.length_penalty + self.objects * likeliest + self.intercept
        return 1 / (1 + math.exp(-max(-700.0, min(700.0, odds))))

    @classmethod
    def from_description(cls, description: dict[str, Any]) -> "Calibration | None":
        """The entry `confidence` of a file's description; None if the file has none.

        Raises:
            InputError: the entry is damaged.
        """
        entry = description.get("confidence")
        if entry is None:
            return None
        if (
            not isinstance(entry, dict)
            or not all(_is_number(entry.get(name), largest) for name, largest in _LARGEST.items())
            or not _is_number(entry.get("objects", 0.0), _LARGEST["slope"])
        ):
            raise InputError("the confidence of the file has no slope and intercept: export the run again")
        slope, intercept, penalty = (float(entry[name]) for name in _LARGEST)
        return cls(slope, intercept, penalty, objects=float(entry.get("objects", 0.0)))

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
        found = 1 / (1 + np.exp(-(inputs @ weights)))
        gradient = inputs.T @ (found - targets)
        hessian = (inputs * (found * (1 - found))[:, None]).T @ inputs + 1e-9 * np.eye(len(weights))
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
    known = {word for reference in references for word in light_tokenize(reference).split()}
    return bool(named) and 2 * len(named & known) >= len(named)


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
    values, is_good_ = np.asarray(confidences, float), np.asarray(good, float)
    groups = [group for group in np.array_split(np.argsort(values, kind="stable"), bins) if len(group)]
    table = [(float(values[one].mean()), float(is_good_[one].mean()), len(one)) for one in groups]
    return {
        "error": sum(abs(mean - share) * count for mean, share, count in table) / len(values),
        # The mean of |x| is sqrt(2 / pi) standard deviations of a normal distribution.
        "chance": sum(math.sqrt(2 / math.pi * mean * (1 - mean) * count) for mean, _, count in table)
        / len(values),
        "good": float(is_good_.mean()),
        "sure": float(np.mean(values >= NOT_SURE)),
        "table": table,
    }
