"""What every pruning method is: gates it writes, a state of its own, and a step after each optimizer step."""

from collections.abc import Iterable

import keras
import tensorflow as tf

from tfsparsecap.errors import InputError
from tfsparsecap.gates import INITIAL_LOGIT, Gate, as_block_shape, gated_layers
from tfsparsecap.pruning.arguments import as_number
from tfsparsecap.pruning.optimizer import PruningOptimizer

#: How far from the sparsity asked for coarse blocks may have a model end, as a share of the weights.
_TOLERANCE = 0.02


class PruningMethod:
    """Base class of the pruning methods.

    A method is given to `tfsparsecap.prune`, which puts gates on the model's layers and calls `attach`. From
    then on `PruningOptimizer` calls `step` once after each optimizer step, inside the compiled training step.

    Args:
        sparsity: share of the gated weights to remove, 0 to below 1.
        block_shape: (inputs, outputs) weights to a gate.

    Raises:
        InputError: a sparsity outside [0, 1) or a malformed block shape.

    Example:
        >>> class FirstStep(PruningMethod):
        ...     '''Closes the first half of each layer's gates as soon as the training begins.'''
        ...     def step(self, gate_gradients):
        ...         sizes = [tf.size(gate.logits) for gate in self.gates]
        ...         kept = [tf.range(size) >= size // 2 for size in sizes]
        ...         self.close([tf.reshape(k, g.logits.shape) for k, g in zip(kept, self.gates)])
        ...         self.steps_done.assign_add(1)
        >>> import tfsparsecap as sc
        >>> model = sc.prune(keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)]), FirstStep(0.5))
        >>> model.compile("adam", "mse")
        >>> model.fit(tf.ones([4, 8]), tf.ones([4, 4]), verbose=0).history["sparsity"]
        [0.5]
    """

    #: Whether XLA can compile `step`. Keras compiles models with XLA by itself where there is a GPU.
    supports_jit = False

    #: What to do where a training that was not cut short ends at less than the sparsity asked for.
    advice = "give a smaller block_shape"

    #: Put before the names of all variables that `add_state` makes: for a method within another.
    state_prefix = ""

    def __init__(self, sparsity: float, *, block_shape=(1, 1)):
        self.sparsity = as_number("sparsity", sparsity)
        if not 0.0 <= self.sparsity < 1.0:
            raise InputError(f"sparsity must be at least 0 and below 1, such as 0.95: got {sparsity!r}")
        self.block_shape = as_block_shape(block_shape)
        self.gates: list[Gate] = []
        self.variables: list[keras.Variable] = []
        #: The gated weights, in the order of `gates`.
        self.weights: list[keras.Variable] = []
        #: Path -> reason of the layers with weights that `prune` put no gates on.
        self.left_alone: dict[str, str] = {}

    def attach(self, model: keras.Model) -> None:
        """Takes over the gates of `model`, fixed ones left out, and makes the method's own state.

        Raises:
            InputError: the method has a model already, or cannot reach its target with this one.
        """
        if self.gates:
            raise InputError(
                "this pruning method already prunes a model: give every model a method of its own"
            )
        pairs = [
            (gate, layer.stored_weight(name))
            for layer in gated_layers(model)
            for name, gate in layer.gate_of.items()
            if not gate.fixed
        ]
        self.gates, self.weights = [gate for gate, _ in pairs], [weight for _, weight in pairs]
        self.gated_size = sum(gate.size for gate in self.gates)
        self._check_reachable()
        for gate in self.gates:
            gate.supports_jit = self.supports_jit
        self.steps_done = self.add_state("steps_done", (), "int64")

    def detach(self) -> None:
        """Forgets the gates and all state, as if `attach` had never been called."""
        self.gates, self.weights, self.variables = [], [], []

    def classes(self) -> list[tuple[str, int, tuple[int, int]]]:
        """The classes of weights, a kernel or an embedding table each: path, weights, (inputs, outputs) of
        the blocks that they are gated in.

        Example:
            >>> import tfsparsecap as sc
            >>> layers = [keras.Input((8,)), keras.layers.Dense(4, name="score")]
            >>> sc.prune(keras.Sequential(layers, name="net"), sc.Magnitude(0.5)).pruning.classes()
            [('net/score/kernel', 32, (1, 1))]
        """
        return [
            (weight.path, gate.size, gate.block)
            for gate, weight in zip(self.gates, self.weights, strict=True)
        ]

    def describe(self) -> str:
        """Which weights belong to which class, and what was left alone and why: lines to print.

        Example:
            >>> import tfsparsecap as sc
            >>> layers = [keras.Input((8,)), keras.layers.Dense(4, name="score")]
            >>> print(sc.prune(keras.Sequential(layers, name="net"), sc.Magnitude(0.5)).pruning.describe())
            32 weights have gates, in 1 class:
              net/score/kernel  32
        """
        classes = self.classes()
        width = max(len(path) for path, *_ in classes)
        digits = max(len(str(size)) for _, size, _ in classes)
        lines = [
            f"{self.gated_size} weights have gates, in {len(classes)} class{'es' if classes[1:] else ''}:"
        ]
        for path, size, block in classes:
            blocks = "" if block == (1, 1) else f"  in blocks of {block}"
            lines.append(f"  {path:{width}}  {size:>{digits}}{blocks}")
        reasons: dict[str, list[str]] = {}
        for path, reason in self.left_alone.items():
            reasons.setdefault(reason, []).append(path)
        for reason, paths in reasons.items():
            more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
            lines.append(f"left alone: {', '.join(paths[:3])}{more} ({reason})")
        return "\n".join(lines)

    def _check_reachable(self) -> None:
        """Raises InputError where blocks are too coarse for the sparsity."""
        if not self.gates or self.sparsity == 0.0:
            return
        share = self.most_closed() / self.gated_size
        if not 0.0 < share < 1.0 or abs(share - self.sparsity) > _TOLERANCE:
            coarsest = max(gate.block_size for gate in self.gates)
            raise InputError(
                f"the {self.gated_size} weights are switched in blocks of up to {coarsest}: a sparsity of"
                f" {self.sparsity} is out of reach, {share:.3f} being the nearest below: give a smaller"
                " block_shape, or skip= the smallest layers"
            )

    def most_closed(self) -> int:
        """How many weights can go in whole blocks and not go beyond the target: here of all layers together.

        With blocks of several sizes it may be fewer, see `keep_masks`: of the smaller ones that would still
        fit none go that are worth more than a larger one that does not.
        """
        left = wanted = round(self.sparsity * self.gated_size)
        for gate in sorted(self.gates, key=lambda gate: -gate.block_size):
            left -= min(left, gate.size) // gate.block_size * gate.block_size
        return wanted - left

    def add_state(self, name: str, shape: tuple, dtype: str = "float32", value=0) -> keras.Variable:
        """Makes a variable that is saved with the optimizer's and restored on resuming."""
        name = self.state_prefix + name
        # Keras's state trees go by paths that must be unique.
        if name in {variable.name for variable in self.variables}:
            name = f"{name}_{len(self.variables)}"
        variable = keras.Variable(
            keras.ops.full(shape, value, dtype), trainable=False, dtype=dtype, autocast=False, name=name
        )
        self.variables.append(variable)
        return variable

    def wrap(self, optimizer: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:
        """The optimizer to train with: moves the weights as `optimizer` does, the gates as this method does.

        A `LossScaleOptimizer` stays outermost, so that gates, too, get gradients that are no longer scaled;
        what this method has wrapped already stays as it is.
        """
        if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
            optimizer.inner_optimizer = self.wrap(optimizer.inner_optimizer)
            return optimizer
        if isinstance(optimizer, PruningOptimizer):
            if optimizer.method is self:
                return optimizer
            raise InputError(
                "this optimizer moves the gates of another model: give every model an optimizer of its own"
            )
        return PruningOptimizer(optimizer, self)

    @property
    def target(self) -> float | None:
        """The sparsity that a training is to end with; None where it is whatever is reached."""
        return self.sparsity

    @property
    def finished(self) -> bool:
        """Whether the method has stopped the training by what `on_validation_end` said."""
        return False

    def weights_learn(self) -> tf.Tensor | None:
        """Whether the step that is being taken trains the weights, bool scalar; None where all steps do.

        In a step that does not, the optimizer is not asked at all: no decay, no constraint, no schedule.
        """
        return None

    def iterations(self, optimizer: keras.optimizers.Optimizer) -> keras.Variable | tf.Tensor:
        """How many steps the training has taken, int64 scalar, where `optimizer` moves the weights.

        Differs from the optimizer's own count where a method lets steps out or starts the optimizer anew.
        """
        return optimizer.iterations

    def before_weights(self, gradients: list[tf.Tensor | None]) -> None:
        """Moves the gated weights by itself, just before the optimizer moves all weights.

        Called inside the compiled training step where a method has its own; the others are never asked and
        the gradients never put together. What the optimizer then does starts from the weights as they are.
        An optimizer that accumulates gradients has it called for every batch, with that batch's gradients.

        Args:
            gradients: of the loss, in the order of `weights`, of their shapes and dense; None for a weight
                that is not trained. They are whole (of all replicas, not scaled) and not clipped.
        """

    def on_validation_end(self, logs: dict[str, float]) -> bool:
        """Takes notice of how the model does on validation data, between two compiled steps.

        Called after each epoch, by `feedback.Feedback`, which `fit` of a pruned model adds where a method has
        its own; a training loop of your own calls it itself. What it changes must be in variables that
        `add_state` made, so that a resumed training goes on alike.

        Args:
            logs: the epoch's, name -> value; without validation scores where the epoch had no validation.

        Returns:
            True to stop the training.
        """
        return False

    def check_metric(self, names: Iterable[str]) -> None:
        """Checks before training that the logs for `on_validation_end` will contain this method's metric.

        Args:
            names: what there will be.

        Raises:
            InputError: it is not among them.
        """

    @classmethod
    def has_own(cls, hook: str) -> bool:
        """Whether the class overrides a method of this base class that does nothing."""
        return getattr(cls, hook) is not getattr(PruningMethod, hook)

    def finalize(self) -> str | None:
        """Puts the model into the state to keep, where that is not the last one; `strip_pruning` calls it.

        Returns:
            A sentence to warn with, where the training ended before the pruning did.
        """
        steps, reached = int(tf.convert_to_tensor(self.steps_done)), float(self.current_sparsity())
        target, total = self.target, getattr(self, "total_steps", None)
        if not steps or target is None:
            return None
        if total is not None and steps < total and reached < target - 0.01:
            return (
                f"the training stopped after {steps} of the {total} steps that the pruning was to take, at a"
                f" sparsity of {reached:.1%} instead of {target:.1%}: train on, or give the method"
                f" total_steps={steps}"
            )
        if reached < target - _TOLERANCE:
            return f"the pruning ended at a sparsity of {reached:.1%} instead of {target:.1%}: {self.advice}"
        return None

    def step(self, gate_gradients: list[tf.Tensor | None]) -> None:
        """Moves the gates once, inside the compiled training step.

        With several replicas it runs on each of them, with the same gradients, and must move each alike.

        Args:
            gate_gradients: gradients of the loss in the order of `gates`, float32 of the logits' shapes; None
                for a gate that is not trained. With n replicas they are the n-th part of the loss's gradient,
                since Keras's optimizers sum over replicas.
        """
        raise NotImplementedError

    def close(self, keep: list[tf.Tensor]) -> None:
        """Sets the gates: bool tensors of the logits' shapes, true for those that are open."""
        for gate, kept in zip(self.gates, keep, strict=True):
            gate.logits.assign(tf.where(kept, INITIAL_LOGIT, -INITIAL_LOGIT))

    def current_sparsity(self) -> tf.Tensor:
        """Share of the gated weights that rounded gates remove: float32 scalar in [0, 1]."""
        kept = tf.add_n([gate.open_count() for gate in self.gates])
        return (self.gated_size - kept) / self.gated_size

    def logs(self) -> dict[str, tf.Tensor]:
        """What a progress bar should show: name -> float32 scalar."""
        return {"sparsity": self.current_sparsity()}

    def get_config(self) -> dict:
        return {"sparsity": self.sparsity, "block_shape": list(self.block_shape)}

    @classmethod
    def from_config(cls, config: dict) -> "PruningMethod":
        return cls(**config)
