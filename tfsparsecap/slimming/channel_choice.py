"""Choice of the channels that go: the least important blocks, until the budget is met."""

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import keras
import numpy as np

from tfsparsecap.errors import InputError
from tfsparsecap.slimming.budget import ChannelCosts, Cost
from tfsparsecap.slimming.groups import RETURNED, Analysis

BUDGETS = ("channels", "parameters", "flops", "latency")


class RatioError(InputError):
    """A ratio that cannot be reached.

    Args:
        problem: what is wrong.
        advice: what to do, with the arguments of `slim`.
        nearest: the ratio next to it that can be reached; None if there is none.
        is_most: whether this is the largest ratio.
    """

    def __init__(self, problem: str, advice: str, nearest: float | None = None, is_most: bool = True) -> None:
        super().__init__(f"{problem}: {advice}")
        self.problem, self.nearest, self.is_most = problem, nearest, is_most

    def of_setting(self, name: str, value: float, stays: bool = False) -> InputError:
        """The error for a setting from which the ratio comes.

        Args:
            name, value: of the setting.
            stays: whether the setting is the share that stays, not the share that goes.
        """
        if self.nearest is None:
            advice = "leave it out"
        else:
            nearest = 100 * (1 - self.nearest if stays else self.nearest)
            larger = stays == self.is_most
            rounded = math.ceil(nearest - 1e-6) if larger else math.floor(nearest + 1e-6)
            advice = f"give about {rounded / 100:g} or {'more' if larger else 'less'}"
        return InputError(f"{name} is {value:g}, but {self.problem}: {advice}")


@dataclass(frozen=True)
class ChannelChoice:
    """Channels to remove.

    Attributes:
        removed: classes of labels.
        before, after: costs.
    """

    removed: np.ndarray
    before: Cost
    after: Cost


@dataclass(frozen=True)
class OriginalSizes:
    """The model before the first of several removals.

    Attributes:
        cost: what ratios are shares of.
        sizes: key of each group -> its channels.
    """

    cost: float
    sizes: dict[str, int]


def blocks(
    analysis: Analysis,
    scores: np.ndarray,
    multiple: int,
    keep: float,
    sizes: Mapping[str, int] | None = None,
) -> list[np.ndarray]:
    """Returns the classes that can go, a block of channels at a time, the least important block first.

    The blocks of equal importance are in turns from all groups, so that equal layers shrink equally.

    Args:
        scores: importance of each class, float64 [labels].
        multiple: channel counts stay multiples of it.
        keep: smallest share of each group that stays.
        sizes: key of a group -> the channels that `keep` is a share of, by default those it has.
    """
    candidates: list[tuple[float, float, np.ndarray]] = []
    for group in analysis.groups:
        order = group.classes[np.argsort(scores[group.classes], kind="stable")]
        block, size = group.block(multiple), group.size
        least = max(block, int(np.ceil(keep * (sizes or {}).get(group.key, size) / block)) * block)
        start = 0
        length = size % block or block
        while start + length <= size - least:
            part = order[start : start + length]
            candidates.append((float(scores[part].mean()), start / size, part))
            start, length = start + length, block
    return [part for _, _, part in sorted(candidates, key=lambda candidate: candidate[:2])]


def choose_channels(
    analysis: Analysis,
    costs: ChannelCosts,
    scores: np.ndarray,
    ratio: float,
    budget: str,
    multiple: int,
    keep: float,
    measure: Callable[[np.ndarray], float] | None = None,
    original: OriginalSizes | None = None,
) -> ChannelChoice | None:
    """Chooses the channels to remove.

    Args:
        analysis: of the model.
        costs: of the model.
        scores: importance of each channel's smallest label, see `importance`.
        ratio: share of the budget to remove.
        budget: one of `BUDGETS`.
        multiple, keep: see `slim`.
        measure: latency of the model without some classes; by default the estimate.
        original: what `ratio` and `keep` are shares of, by default the model as it is.

    Returns:
        None if enough has been removed from `original` before.

    Raises:
        RatioError: the ratio cannot be reached, or no channel can be removed.
    """
    parts = blocks(analysis, scores, multiple, keep, original.sizes if original else None)
    everything = analysis.alive(np.array([], np.int64))
    before = costs(everything)
    name = analysis.graph.name

    def removed(number: int) -> np.ndarray:
        return np.concatenate([np.array([], np.int64), *parts[:number]])

    def cost(number: int) -> float:
        if measure is not None:
            return measure(removed(number))
        return float(getattr(costs(analysis.alive(removed(number))), budget))

    reference = max(original.cost if original else cost(0), 1e-30)

    def share(number: int) -> float:
        return 1 - cost(number) / reference

    if original and share(0) >= ratio:
        return None
    if not parts:
        single = blocks(analysis, scores, multiple, 0, original.sizes if original else None)
        problem, advice = f"{name} has no channels to remove", _why(analysis, multiple, keep, bool(single))
        raise RatioError(problem, advice)
    most = share(len(parts))
    if most < ratio:
        problem = f"{name} can lose at most {most:.0%} of its {budget}, not {ratio:.0%}"
        lower = [f"keep={keep:g}"] * (keep > 0) + [f"multiple={multiple}"] * (multiple > 1)
        advice = " or ".join([", ".join(["lower the ratio", *lower[:-1]]), *lower[-1:]])
        raise RatioError(problem, f"{advice}{', or skip fewer layers' * _is_skipping(analysis)}", most)
    high = bisect_left(range(len(parts)), ratio, lo=1, key=share)  # the first share of at least `ratio`
    if budget == "channels" and abs(share(high - 1) - ratio) < abs(share(high) - ratio):
        high -= 1
    if not high:
        if original:
            return None
        least = share(1)
        problem = f"{name} can lose {least:.0%} of its channels or none, and {ratio:.0%} is nearer to none"
        advice = "give a larger ratio" + f", or a smaller multiple={multiple}" * (multiple > 1)
        raise RatioError(problem, advice, least, is_most=False)
    chosen = removed(high)
    return ChannelChoice(chosen, before, costs(analysis.alive(chosen)))


def _why(analysis: Analysis, multiple: int, keep: float, keep_is_cause: bool) -> str:
    if keep_is_cause:
        smaller = "keep= or multiple=" if multiple > 1 else "keep="
        return f"with keep={keep:g}, no layer can lose {multiple}; give a smaller {smaller}"
    if analysis.groups:
        advice = "give a smaller multiple=" if multiple > 1 else "a layer keeps at least one"
        return f"no layer has more than {multiple} that may go; {advice}"
    reasons = list(analysis.reasons().items())
    unknown = [f"{name} ({kind}) has no rule" for name, kind in analysis.unknown.items()]
    if all(reason == RETURNED for _, reason in reasons):
        listed = "; ".join([*unknown[:3], *(f"{layer}: {reason}" for layer, reason in reasons)][:3])
    else:
        listed = "; ".join(f"{layer}: {reason}" for layer, reason in reasons[:3])
    if _is_skipping(analysis):
        advice = "skip fewer layers"
    elif unknown or any(reason != RETURNED for _, reason in reasons):
        advice = "use layers or keras.ops that docs/slimming.md lists instead"
    else:
        advice = "only channels between two layers can be removed"
    return f"{listed or 'it has no convolutions or dense layers'}; {advice}"


def _is_skipping(analysis: Analysis) -> bool:
    return any(reason.startswith("skip contains") for reason in analysis.reasons().values())


def unused(analysis: Analysis, multiple: int) -> np.ndarray:
    """Returns the classes that all kernels multiply by zero, in blocks; each group keeps at least one block.

    Args:
        multiple: channel counts stay multiples of it.
    """
    used = analysis.mixed | analysis.fixed
    for info in analysis.infos.values():
        for fold, labels in info.folds:
            kernel = np.moveaxis(keras.ops.convert_to_numpy(fold.kernel), fold.axis, 0)
            is_used = kernel.reshape(len(kernel), -1).any(1)
            # The kernel of a grouped convolution has the channels of one group.
            used[analysis.classes[labels[np.tile(is_used, len(labels) // len(kernel))]]] = True
    removed = [np.array([], np.int64)]
    for group in analysis.groups:
        free = group.classes[~used[group.classes]]
        block = group.block(multiple)
        # The first block makes up for a size that is no multiple.
        remainder = group.size % block
        number = min(len(free), max(group.size - block, 0))
        number = 0 if number < remainder else remainder + (number - remainder) // block * block
        removed.append(free[:number])
    return np.concatenate(removed)
