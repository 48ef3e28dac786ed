"""`sc.slim` and `sc.slim_plan`: remove the least important channels of a model."""

import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import keras
import numpy as np
from rich.console import Console
from rich.table import Table

from tfsparsecap.core.keras_internals import nested_layers
from tfsparsecap.core.progress import Progress, progress_bar
from tfsparsecap.errors import InputError, check_number
from tfsparsecap.gates import gates
from tfsparsecap.model_summary.summary_tables import amount
from tfsparsecap.slimming.budget import ChannelCosts, Cost
from tfsparsecap.slimming.channel_choice import ChannelChoice, OriginalSizes, choose_channels, unused
from tfsparsecap.slimming.compiled import compile_like
from tfsparsecap.slimming.groups import Analysis, Group, skipped
from tfsparsecap.slimming.importance import importance
from tfsparsecap.slimming.operation_graph import trace
from tfsparsecap.slimming.options import Options
from tfsparsecap.slimming.rebuild import Pair, rebuild
from tfsparsecap.slimming.regression import compensate

#: Width of the printed table in characters.
WIDTH = 110


@dataclass(frozen=True)
class GroupRow:
    """A group of channels that are removed together.

    Attributes:
        name: its first layer, and the number of other layers that lose the same channels.
        unit: what is removed: "channels", "units", "heads", "key size", "value size", "output".
        layers: names of the layers that create the channels.
        before, after: channels of the first layer.
    """

    name: str
    unit: str
    layers: tuple[str, ...]
    before: int
    after: int


class SlimPlan:
    """What `sc.slim` removes from a model; `print(plan)` shows it as a table.

    Attributes:
        groups: rows of the table.
        before, after: channels, parameters, multiply-adds, bytes and estimated latency of the model.
        whole: layers that stay whole -> the reason.
        notes: assumptions, as sentences.
        analysis: of the model.
    """

    def __init__(
        self,
        model: keras.Model,
        analysis: Analysis,
        choice: ChannelChoice,
        costs: ChannelCosts,
        samples: Any = None,
    ) -> None:
        self._model, self.analysis, self._choice, self._samples = model, analysis, choice, samples
        self.before: Cost = choice.before
        self.after: Cost = choice.after
        removed = set(choice.removed.tolist())
        self.groups = tuple(_row(group, removed) for group in analysis.groups)
        self.whole: dict[str, str] = analysis.reasons()
        self.notes = list(analysis.graph.notes)
        for name, kind in analysis.unknown.items():
            self.notes.append(f"{name} ({kind}) has no rule: it and all that is coupled to it stay whole")
        if costs.uncounted:
            self.notes.append(f"the multiply-adds of {', '.join(costs.uncounted[:5])} are not counted")

    def apply(self, keep_optimizer: bool = False) -> keras.Model:
        """Creates the slim model; the given model is left untouched.

        Args:
            keep_optimizer: compile it like the given model, with the optimizer's state of all channels that
                stay.

        Returns:
            A model with the same inputs and outputs, `Sequential` if the given one is.

        Raises:
            InputError: a layer, or the loss or a metric with `keep_optimizer`, cannot be copied.
        """
        slim, pairs, alive = self.apply_with_pairs()
        if keep_optimizer and self._model.compiled:
            compile_like(self._model, slim, pairs, alive)
        return slim

    def apply_with_pairs(self) -> tuple[keras.Model, list[Pair], np.ndarray]:
        """Returns the slim model, and what `compiled.carry_state` needs: pairs of weights, labels that stay.

        Raises:
            InputError: a layer cannot be copied.
        """
        alive = self.analysis.alive(self._choice.removed)
        if self._samples is None:
            return *rebuild(self.analysis, alive), alive
        with _unchanged(self._model), progress_bar() as progress:
            values = compensate(self.analysis, alive, _announced(self._samples, progress))
        return *rebuild(self.analysis, alive, values), alive

    def __str__(self) -> str:
        groups = Table(title=f"{self.analysis.graph.name}: channels that are removed together")
        for heading, justify in (("group", "left"), ("of", "left"), ("before", "right"), ("after", "right")):
            groups.add_column(heading, justify=justify, overflow="fold")  # type: ignore[arg-type]
        for row in self.groups:
            groups.add_row(row.name, row.unit, str(row.before), str(row.after))
        total = Table(title="model")
        for heading in ("", "before", "after", "removed"):
            total.add_column(heading, justify="left" if not heading else "right")
        for name, before, after, shown in (
            ("channels", self.before.channels, self.after.channels, str),
            ("parameters", self.before.parameters, self.after.parameters, amount),
            ("multiply-adds", self.before.flops, self.after.flops, amount),
            ("bytes (float32)", self.before.bytes, self.after.bytes, amount),
            ("estimated ms", self.before.latency, self.after.latency, "{:.2f}".format),
        ):
            share = f"{1 - after / before:.1%}" if before else ""
            total.add_row(name, shown(before), shown(after), share)
        text = io.StringIO()
        console = Console(file=text, width=WIDTH)
        console.print(groups)
        console.print(total)
        for note in self.notes:
            console.print(f"Note: {note}.")
        return text.getvalue()

    def __repr__(self) -> str:
        return (
            f"<SlimPlan of {self.analysis.graph.name}: {self.after.channels} of {self.before.channels}"
            f" channels, {self.after.flops} of {self.before.flops} multiply-adds>"
        )


def _row(group: Group, removed: set[int]) -> GroupRow:
    gone = sum(int(label) in removed for label in group.classes)
    names = tuple(source.name for source in group.sources)
    width = group.width
    return GroupRow(group.name, group.unit, names, group.size * width, (group.size - gone) * width)


def cost_of(model: keras.Model) -> Cost:
    """Returns the cost of a model as it is.

    Raises:
        InputError: the model is not built, or cannot be traced.
    """
    analysis = Analysis(trace(model))
    return ChannelCosts(analysis)(analysis.alive(np.array([], np.int64)))


def flat_copy(model: keras.Model) -> keras.Model:
    """Returns a flat copy with all channels, compiled like the model, with the optimizer's state.

    Raises:
        InputError: a layer, the loss or a metric cannot be copied.
    """
    analysis = Analysis(trace(model))
    alive = analysis.alive(np.array([], np.int64))
    copy, pairs = rebuild(analysis, alive)
    compile_like(model, copy, pairs, alive)
    return copy


def _announced(samples: Iterable[Any], progress: Progress) -> Iterator[Any]:
    for number, batch in enumerate(samples, 1):
        progress(f"predicting removed channels: batch {number} of the samples", None)
        yield batch


@contextmanager
def _unchanged(model: keras.Model) -> Iterator[None]:
    """Restores the states of stateful recurrent layers, which calls change."""
    states = [
        state for layer in nested_layers(model) for state in keras.tree.flatten(getattr(layer, "states", []))
    ]
    variables = [state for state in states if isinstance(state, keras.Variable)]
    values = [keras.ops.convert_to_numpy(state) for state in variables]
    try:
        yield
    finally:
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)


def original_sizes(model: keras.Model, ratio: float, options: Options) -> OriginalSizes:
    """Returns what the ratios of several removals are shares of.

    Args:
        model: before the first removal.
        ratio: to be removed in the end.
        options: of all removals.

    Raises:
        InputError: so much cannot be removed, as in `slim`.
    """
    # What can be removed does not depend on the criterion, and norms are computed fastest.
    plan = _planned(model, ratio, replace(options, criterion="l2", samples=None))
    cost = getattr(plan.before, options.budget) if options.latency is None else options.measured(model)
    return OriginalSizes(cost, {group.key: group.size for group in plan.analysis.groups})


def slim_plan(model: keras.Model, ratio: float | None = 0.5, **options: Any) -> SlimPlan:
    """Chooses the channels that `slim` with the same arguments removes, and shows what they cost.

    Args:
        model, ratio: see `slim`.
        **options: other options of `slim`: budget, criterion, multiple, skip, keep, samples, latency.

    Returns:
        The plan. `print(plan)` shows a table, `plan.apply()` creates the slim model.

    Raises:
        InputError: as in `slim`, or there is no such option.

    Examples:
        >>> layers = [keras.Input((8,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(2)]
        >>> slim_plan(keras.Sequential(layers, name="classifier"), 0.5)
        <SlimPlan of classifier: 32 of 64 channels, 320 of 640 multiply-adds>
    """
    return _planned(model, ratio, Options.named("slim_plan", options))


def _planned(model: keras.Model, ratio: float | None, options: Options) -> SlimPlan:
    if ratio is None:
        options.check_without_ratio()
    plan = plan_removal(model, ratio, options)
    assert plan is not None  # only a model that was slimmed before can have lost enough
    return plan


def plan_removal(
    model: keras.Model, ratio: float | None, options: Options, original: OriginalSizes | None = None
) -> SlimPlan | None:
    """Plans one of several removals.

    Args:
        model: after the removals before.
        ratio: share of `original` that is to be gone after this one, or None, see `slim`.
        options: see `slim`.
        original: by default, the model itself.

    Returns:
        None if nothing is left to remove from `original`.

    Raises:
        InputError: as in `slim`.
    """
    if ratio is not None:
        ratio = check_number("ratio", ratio, above=0, below=1)
    graph = trace(model)
    if gates(model):
        raise InputError(f"{model.name} has gates of sc.prune: call sc.strip_pruning before sc.slim")
    analysis = Analysis(graph, skipped(graph, model, options.skip))
    costs = ChannelCosts(analysis)
    if ratio is None:
        removed = unused(analysis, options.multiple)
        before = costs(analysis.alive(np.array([], np.int64)))
        after = costs(analysis.alive(removed))
        return SlimPlan(model, analysis, ChannelChoice(removed, before, after), costs)
    criterion = options.criterion or ("l2" if options.samples is None else "taylor")
    with _unchanged(model):
        scores = importance(analysis, criterion, model, options.samples)

    def measure(removed: np.ndarray) -> float:
        return options.measured(rebuild(analysis, analysis.alive(removed))[0])

    measured = None if options.latency is None else measure
    budget, multiple, keep = options.budget, options.multiple, options.keep
    choice = choose_channels(analysis, costs, scores, ratio, budget, multiple, keep, measured, original)
    return None if choice is None else SlimPlan(model, analysis, choice, costs, options.samples)


def slim(
    model: keras.Model,
    ratio: float | None = 0.5,
    *,
    budget: str = "channels",
    criterion: str | None = None,
    multiple: int = 8,
    skip: str | keras.Layer | Iterable[str | keras.Layer] = (),
    keep: float = 0.1,
    samples: Any = None,
    latency: Callable[[keras.Model], float] | None = None,
) -> keras.Model:
    """Removes channels from a Keras model: the result is a smaller stock model, not one with zeros.

    Channels that belong together are removed together: those of a convolution, its batch normalisation and
    the layers that take its output; of all layers that are added in residual blocks; of heads and key sizes
    in attention; of units and gates in recurrent layers. Layers and operations that are not known keep all
    their channels, and so do the outputs of the model. Nested models are flattened. Compile the result again.

    Args:
        model: a built functional or sequential Keras 3 model, or a subclassed one of Keras layers and
            `keras.ops`. It is left untouched.
        ratio: share of the budget to remove; None removes only channels that all kernels multiply by zero,
            which does not change the outputs. Then only `multiple` and `skip` have an effect.
        budget: what `ratio` is a share of: "channels" (of all layers that may lose some), "parameters",
            "flops" (multiply-adds) or "latency".
        criterion: importance of a channel. "rtic": its share in the variance of the next layer's outputs,
            compared in the whole network (RTIC, equation 3); "l1" or "l2": the norm of its weights, relative
            to the layer; "taylor": the change of the outputs on `samples`. By default "taylor" with samples,
            "l2" without.
        multiple: layers keep a multiple of so many channels.
        skip: layers, or their names (also patterns: `"stem_*"`), whose channels stay.
        keep: smallest share of the channels of each group that stays.
        samples: a list of batches of inputs as the model takes them, such as float32 [B, H, W, 3]: removed
            channels are predicted from those that stay, by ridge regression, and the next kernels and biases
            take them over. Without samples, nothing does. A data set or a generator, too, if it ends.
        latency: for the budget "latency": a function that measures a model, such as
            `tfsparsecap_export.model_latency`; it is called about ten times. By default the latency is
            estimated from multiply-adds and elements.

    Returns:
        A model with the same inputs and outputs, `Sequential` if `model` is.

    Raises:
        InputError: the model is not built, contains gates or layers that cannot be copied, has nothing to
            remove, or cannot lose so much; or an argument is wrong.

    Examples:
        >>> layers = [keras.Input((8,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(2)]
        >>> smaller = slim(keras.Sequential(layers), 0.5)
        >>> [layer.units for layer in smaller.layers]
        [32, 2]
    """
    options = Options(budget, criterion, multiple, skip, keep, samples, latency)
    return _planned(model, ratio, options).apply()
