"""Choice of the channels that go: the least important blocks, until the budget is met."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from tfsparsecap.errors import InputError, unknown_name
from tfsparsecap.slimming.cost import Cost, Costs
from tfsparsecap.slimming.groups import Analysis

BUDGETS = ("channels", "parameters", "flops", "latency")


@dataclass(frozen=True)
class Choice:
    """Channels to remove.

    Attributes:
        removed: classes of labels.
        before, after: costs.
    """

    removed: np.ndarray
    before: Cost
    after: Cost


@dataclass(frozen=True)
class Whole:
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
    found: list[tuple[float, float, np.ndarray]] = []
    for group in analysis.groups:
        order = group.classes[np.argsort(scores[group.classes], kind="stable")]
        block, size = group.block(multiple), group.size
        least = max(block, int(np.ceil(keep * (sizes or {}).get(group.key, size) / block)) * block)
        start = 0
        length = size % block or block
        while start + length <= size - least:
            part = order[start : start + length]
            found.append((float(scores[part].mean()), start / size, part))
            start, length = start + length, block
    return [part for _, _, part in sorted(found, key=lambda one: one[:2])]


def choose(
    analysis: Analysis,
    costs: Costs,
    scores: np.ndarray,
    ratio: float,
    budget: str,
    multiple: int,
    keep: float,
    measure: Callable[[np.ndarray], float] | None = None,
    whole: Whole | None = None,
) -> Choice | None:
    """Chooses the channels to remove.

    Args:
        ratio: share of the budget to remove.
        budget: one of `BUDGETS`.
        measure: latency of the model without some classes; by default the estimate.
        whole: what `ratio` and `keep` are shares of, by default the model as it is.

    Returns:
        None if enough has been removed from `whole` before.

    Raises:
        InputError: the ratio cannot be reached, or no channel can be removed.
    """
    if budget not in BUDGETS:
        raise unknown_name("budget", budget, BUDGETS)
    parts = blocks(analysis, scores, multiple, keep, whole.sizes if whole else None)
    everything = analysis.alive(np.array([], np.int64))
    before = costs(everything)
    name = analysis.graph.name

    def removed(number: int) -> np.ndarray:
        return np.concatenate([np.array([], np.int64), *parts[:number]])

    def cost(number: int) -> float:
        if budget == "latency" and measure is not None:
            return measure(removed(number))
        return getattr(costs(analysis.alive(removed(number))), budget)

    reference = max(whole.cost if whole else cost(0), 1e-30)

    def share(number: int) -> float:
        return 1 - cost(number) / reference

    if whole and share(0) >= ratio:
        return None
    if not parts:
        raise InputError(f"{name} has no channels to remove: {_why(analysis, multiple)}")
    most = share(len(parts))
    if most < ratio:
        raise InputError(
            f"{name} can lose at most {most:.0%} of its {budget}, not {ratio:.0%}: lower the ratio, keep= or"
            f" multiple={multiple}, or skip fewer layers"
        )
    low, high = 0, len(parts)  # share(low) < ratio <= share(high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if share(middle) >= ratio else (middle, high)
    if budget == "channels" and abs(share(low) - ratio) < abs(share(high) - ratio):
        high = low
    if not high:
        if whole:
            return None
        raise InputError(
            f"{name} can lose {share(1):.0%} of its channels or none, and {ratio:.0%} is nearer to none: give"
            f" a larger ratio, or a smaller multiple={multiple}"
        )
    chosen = removed(high)
    return Choice(chosen, before, costs(analysis.alive(chosen)))


def _why(analysis: Analysis, multiple: int) -> str:
    if analysis.groups:
        return f"no layer has more than {multiple} that may go; give a smaller multiple="
    reasons = list(analysis.reasons().items())
    listed = "; ".join(f"{layer}: {reason}" for layer, reason in reasons[:3])
    given = {reason for _, reason in reasons}
    if any(reason.startswith("skip contains") for reason in given):
        advice = "skip fewer layers"
    elif given - {"the model returns it"}:
        advice = "use layers or keras.ops that docs/slimming.md lists instead"
    else:
        advice = "only channels between two layers can be removed"
    return f"{listed or 'it has no convolutions or dense layers'}; {advice}"


def whole_blocks(analysis: Analysis, unused: np.ndarray, multiple: int) -> np.ndarray:
    """Returns classes `unused` (bool [labels]) in whole blocks; each group keeps at least one block."""
    found = [np.array([], np.int64)]
    for group in analysis.groups:
        free = group.classes[unused[group.classes]]
        block = group.block(multiple)
        # The first block makes up for a size that is no multiple.
        rest = group.size % block
        number = min(len(free), max(group.size - block, 0))
        number = 0 if number < rest else rest + (number - rest) // block * block
        found.append(free[:number])
    return np.concatenate(found)
