"""`sc.Slim` removes channels, fine-tunes and repeats; `sc.regularize_gammas` prepares a model for it."""

import glob
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import keras
import numpy as np
from keras.callbacks import Callback

from tfsparsecap.core.array_files import spread
from tfsparsecap.core.keras_internals import nested_layers
from tfsparsecap.errors import InputError, check_number, check_whole
from tfsparsecap.gates import gates
from tfsparsecap.slimming.groups import skipped
from tfsparsecap.slimming.operation_graph import Graph, check_built, trace
from tfsparsecap.slimming.options import Options
from tfsparsecap.slimming.plan import SlimPlan, flat_copy, original_sizes, plan_removal
from tfsparsecap.slimming.regression import SamplesError

#: What a class can override of a training, which the slim model, a stock one, would not do.
_OF_TRAINING = (
    "compile", "fit", "train_step", "train_on_batch", "test_step", "test_on_batch", "evaluate",
    "compute_loss", "compute_metrics", "metrics", "make_train_function", "make_test_function",
    "get_metrics_result",
)  # fmt: skip
#: Training examples that are the samples of a schedule without any.
_EXAMPLES = 256


def regularize_gammas(model: keras.Model, strength: float = 1e-4) -> keras.Model:
    """Adds `strength * sum(gamma²)` of all batch normalisations to the loss of a built model, in place.

    The paper trains with it before it removes channels: unimportant ones end with a small gamma.

    Args:
        model: a built model; compile it afterwards.
        strength: of the regularizer; 0 removes it.

    Returns:
        `model`.

    Raises:
        InputError: the model is not built, or no batch normalisation has a gamma.

    Examples:
        >>> layers = [keras.Input((8,)), keras.layers.Dense(4), keras.layers.BatchNormalization()]
        >>> [float(loss) for loss in regularize_gammas(keras.Sequential(layers), 0.5).losses]
        [2.0]
    """
    check_built(model, "sc.regularize_gammas", keras.Layer)
    strength = check_number("strength", strength, at_least=0)
    regularizer = keras.regularizers.L2(strength) if strength else None
    is_regularized = False
    for layer in nested_layers(model):
        gamma = getattr(layer, "gamma", None)
        if isinstance(layer, keras.layers.BatchNormalization) and gamma is not None:
            layer.gamma_regularizer = gamma.regularizer = regularizer
            is_regularized = True
    if strength and not is_regularized:
        raise InputError(f"{model.name} has no batch normalisation with a gamma to regularize")
    return model


def first_epochs(epochs: int, iterations: int) -> list[int]:
    """Returns the epoch, from 0, at which each iteration of a schedule begins.

    The channels are gone after half of the epochs, so that the final network is trained for the other half;
    with fewer than `2 * (iterations - 1)` epochs, after one epoch for each iteration.

    Args:
        epochs: of all iterations together, `iterations` or more.
        iterations: their number, 1 or more.

    Examples:
        >>> first_epochs(16, 5), first_epochs(6, 5), first_epochs(3, 1)
        ([0, 2, 4, 6, 8], [0, 1, 2, 3, 4], [0])
    """
    return [max(number, number * epochs // (2 * max(1, iterations - 1))) for number in range(iterations)]


class Slim:
    """Removes channels in several iterations and fine-tunes after each (RTIC, iterative channel pruning).

    `fit` of Keras trains a compiled graph with weights of fixed shapes, so a callback cannot replace the
    model inside it: `Slim(...).fit(model, data, epochs=…)` calls it once for each iteration and returns the
    slim model. The optimizer's state of the channels that stay carries over.

    Args:
        ratio: share to remove in total.
        iterations: number T of iterations; each removes the same amount of the whole model.
        **options: other options of `slim`: budget, criterion, multiple, skip, keep, samples, latency. `keep`
            is a share of the channels before the first iteration. Without `samples`, up to 256 training
            examples are used: spread over arrays, or the first ones of a data set; none of an iterator,
            which can be read only once, or of sparse data. `samples=None` uses none.

    Attributes:
        plans: what each iteration removed.
        history: metric -> its value after each epoch.

    Raises:
        InputError: `ratio`, `iterations` or an option is out of range, or there is no such option.

    Examples:
        >>> layers = [keras.Input((8,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(2)]
        >>> model = keras.Sequential(layers)
        >>> model.compile("adam", "mse")
        >>> data = keras.ops.ones((4, 8)), keras.ops.ones((4, 2))
        >>> small = Slim(0.5, iterations=2).fit(model, *data, epochs=2, verbose=0)
        >>> small.layers[0].units
        32
    """

    def __init__(self, ratio: float = 0.5, iterations: int = 5, **options: Any) -> None:
        self.ratio = check_number("ratio", ratio, above=0, below=1)
        self.iterations = check_whole("iterations", iterations, at_least=1)
        self.options = Options.named("Slim", options)
        self._option_values = options
        self.plans: list[SlimPlan] = []
        self.history: dict[str, list[float]] = {}

    def fit(
        self,
        model: keras.Model,
        *data: Any,
        epochs: int,
        callbacks: Callback | Sequence[Callback] | Callable[[], Sequence[Callback]] | None = None,
        **arguments: Any,
    ) -> keras.Model:
        """Removes channels and fine-tunes, `iterations` times.

        Args:
            model: a compiled model. It is left untouched: its first iteration works on a smaller copy.
            *data: as in Keras's `fit`: a data set, or inputs and targets.
            epochs: of all iterations together, at least one for each. The last iteration gets half of them,
                or more, see `first_epochs`.
            callbacks: of each iteration, or a function that creates new ones for it.
            **arguments: others of Keras's `fit`, but not `initial_epoch`.

        Returns:
            The slim model, compiled.

        Raises:
            InputError: the model is not compiled or trains in its own way, there are fewer epochs than
                iterations, no data or a generator without `steps_per_epoch`, a `BackupAndRestore`, or as in
                `slim`.
        """
        graph = trace(model, "sc.Slim")
        _check_training(model, [*data, *(arguments.get(name) for name in ("x", "y"))], arguments)
        epochs = check_whole("epochs", epochs, at_least=1)
        if epochs < self.iterations:
            raise InputError(
                f"epochs is {epochs}, fewer than the {self.iterations} iterations: each needs at least one"
            )
        options = self._with_samples(graph, data, arguments)
        original = original_sizes(model, self.ratio, options)
        self.history = {}
        operations_of = skipped(graph, model, options.skip)
        names = [operation.name for operations in operations_of.values() for operation in operations]
        options = replace(options, skip=map(glob.escape, names))  # slim models have other layers
        for number, (first, last) in enumerate(pairwise([*first_epochs(epochs, self.iterations), epochs])):
            fit_callbacks = _of_iteration(callbacks)
            share = self.ratio * (number + 1) / self.iterations
            with _about_examples(options.samples is not self.options.samples):
                plan = plan_removal(model, share, options, original)
                small = None if plan is None else plan.apply(keep_optimizer=True)
            if plan is not None and small is not None:
                self.plans.append(plan)
                model = small
            elif not number:
                model = flat_copy(model)
            done = model.fit(*data, initial_epoch=first, epochs=last, callbacks=fit_callbacks, **arguments)
            for name, values in done.history.items():
                self.history.setdefault(name, []).extend(map(float, values))
        return model

    def _with_samples(self, graph: Graph, data: Sequence[Any], arguments: dict[str, Any]) -> Options:
        """The options, with training examples as samples if none are given."""
        if "samples" in self._option_values:
            return self.options
        named = dict(zip(("x", "y", "batch_size"), data, strict=False)) | arguments
        # Keras validates with the last ones.
        share = 1 - (named.get("validation_split") or 0.0)
        # A model for batches of one size, such as a stateful one, takes no others.
        is_fixed = any(layer.batch_shape[0] for layer in graph.input_layers.values())
        batches = _examples(named.get("x"), named.get("batch_size") or 32, share, is_fixed)
        if batches is None:
            return self.options
        batches = [keras.utils.unpack_x_y_sample_weight(batch)[:1] for batch in batches]
        return Options(**{**self._option_values, "skip": self.options.skip, "samples": batches})


def _of_iteration(
    callbacks: Callback | Sequence[Callback] | Callable[[], Sequence[Callback]] | None,
) -> list[Callback]:
    """The callbacks of the next iteration; refuses those that would load a model of another size."""
    created = callbacks() if callable(callbacks) else callbacks
    listed = [created] if isinstance(created, Callback) else list(created or ())
    if any(isinstance(callback, keras.callbacks.BackupAndRestore) for callback in listed):
        raise InputError(
            "Slim.fit cannot continue an interrupted run from a BackupAndRestore, whose model may have other"
            " sizes: leave it out, or call sc.slim between trainings of your own and save each model"
        )
    return listed


@contextmanager
def _about_examples(are_examples: bool) -> Iterator[None]:
    """Explains an error of samples that nobody has given."""
    try:
        yield
    except SamplesError as error:
        if not are_examples:
            raise
        raise InputError(
            f"{error} (Slim.fit takes training examples as samples: give samples= others, or None for none)"
        ) from error


def _examples(x: Any, batch_size: int, share: float, is_fixed: bool) -> list[Any] | None:
    """Some batches of what `fit` gets, `_EXAMPLES` examples or fewer.

    Args:
        x: arrays or a data set.
        batch_size: of arrays.
        share: of the arrays, from the first, to take them from.
        is_fixed: batches stay as they are, and the last, smaller ones are left out.

    Returns:
        None of an iterator, which can be read only once, and of data that cannot be sliced, such as sparse
        data.
    """
    batches: Iterable[Any]
    if isinstance(x, keras.utils.PyDataset):  # its own iterator may not end
        batches = map(x.__getitem__, range(x.num_batches or _EXAMPLES))
    elif isinstance(x, Iterator) or (hasattr(x, "shape") and not hasattr(x, "__array__")):
        return None
    elif hasattr(x, "__array__") or isinstance(x, (list, tuple, dict)):
        arrays = keras.tree.map_structure(np.asarray, (x,))
        number = int(len(keras.tree.flatten(arrays)[0]) * share)
        count = min(number, max(batch_size * is_fixed, _EXAMPLES))
        count -= count % batch_size if count > batch_size else 0
        split = np.array_split(np.array(spread(number, count), int), max(1, count // batch_size))
        batches = (_rows(arrays, rows) for rows in split)
    else:
        batches = x
    examples: list[Any] = []
    remaining_examples = _EXAMPLES
    for batch in batches:
        leaves = [leaf for leaf in keras.tree.flatten(batch) if leaf is not None]
        if not all(hasattr(leaf, "__getitem__") for leaf in leaves):
            return None  # sparse, or of several replicas
        number = len(leaves[0])
        if not (is_fixed and examples and number < len(keras.tree.flatten(examples[0])[0])):
            examples.append(batch if is_fixed else _rows(batch, slice(remaining_examples)))
        remaining_examples -= number
        if remaining_examples <= 0:
            break
    return examples


def _rows(batch: Any, rows: Any) -> Any:
    return keras.tree.map_structure(lambda leaf: None if leaf is None else leaf[rows], batch)


def _check_training(model: keras.Model, data: list[Any], arguments: dict[str, Any]) -> None:
    """Refuses what `Slim.fit` cannot train with or would lose; gates are refused later."""
    if not model.compiled:
        raise InputError(f"{model.name} is not compiled: call model.compile before Slim.fit")
    own = [
        name
        for name in _OF_TRAINING
        if name in vars(model) or getattr(type(model), name) is not getattr(keras.Model, name)
    ]
    if own and not gates(model):
        raise InputError(
            f"{model.name}, a {type(model).__name__}, has its own {own[0]}, which the slim model, a stock"
            " one, would lose: use sc.slim between trainings of your own instead of sc.Slim"
        )
    if all(part is None for part in data):
        raise InputError("Slim.fit has no data to train on: give a data set, or inputs and targets")
    if any(isinstance(part, Iterator) for part in data) and not arguments.get("steps_per_epoch"):
        raise InputError(
            "Slim.fit would read a generator to its end in the first epoch: give steps_per_epoch= and a"
            " generator that does not end, or a data set"
        )
    if "initial_epoch" in arguments:
        raise InputError("Slim.fit counts the epochs itself: leave initial_epoch= out")
