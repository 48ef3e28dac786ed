"""The interface of all pruning methods: gates, state, and a step after each optimizer step."""

import inspect
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, Self

import keras
import tensorflow as tf

from tfsparsecap.errors import InputError, check_number, check_whole
from tfsparsecap.gates import INITIAL_LOGIT, Gate, as_block_shape, gated_layers
from tfsparsecap.pruning.optimizer import PruningOptimizer
from tfsparsecap.pruning.schedule import Schedule
from tfsparsecap.pruning.selection import keep_masks, with_floor

#: Largest difference from the requested sparsity that coarse blocks may cause.
_TOLERANCE = 0.02


class PruningMethod:
    """Base class of the pruning methods.

    `tfsparsecap.prune` puts gates on a model's layers and calls `attach`. From then on `PruningOptimizer`
    calls `step` once after each optimizer step, inside the compiled training step.

    A subclass stores each constructor argument as an attribute of the same name, which `get_config` reads.

    Args:
        sparsity: share of the gated weights to remove, 0 to below 1.
        total_steps: optimizer steps of the training; None if not known. With gradient accumulation, each
            batch counts as a step, here and in all methods and schedules.
        block_shape: (inputs, outputs) weights per gate.
        schedule: when gates are closed; only for methods that name the options they use in
            `schedule_options`.

    Raises:
        InputError: a sparsity outside [0, 1), fewer than one step, a malformed block shape, or a schedule
            that the method cannot follow.

    Examples:
        >>> class FirstStep(PruningMethod):
        ...     '''Closes the first half of each layer's gates in the first training step.'''
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

    #: Whether gates are sampled in training (otherwise they are rounded), and whether they get gradients.
    samples_gates = trains_gates = True

    #: Whether the method can prune a pretrained encoder in one phase of a run (`pruning.encoder` A, B or C).
    supports_encoder_schemes = False

    #: Whether XLA can compile `step`.
    supports_jit = True

    #: Options of `Schedule` that the method uses.
    schedule_options: tuple[str, ...] = ()

    #: Advice in the warning that a complete training ended below the requested sparsity.
    advice = "give a smaller block_shape"

    #: Prefix of the names of the variables that `add_state` creates; set if one method contains another.
    state_prefix = ""

    #: If not None, it is called just before the optimizer updates the weights, with the loss's gradients:
    #: summed over replicas, not scaled or clipped, dense, in the order of `weights`, None if not trained. It
    #: may assign the weights, or return the gradients of its own term of the loss, which are added.
    before_optimizer_step: Callable[[list[tf.Tensor | None]], list[tf.Tensor | None] | None] | None = None

    def __init__(
        self,
        sparsity: float,
        total_steps: int | None = None,
        *,
        block_shape: Sequence[int] = (1, 1),
        schedule: Schedule | None = None,
    ) -> None:
        self.sparsity = check_number("sparsity", sparsity, at_least=0, below=1)
        self.total_steps = total_steps
        if total_steps is not None:
            self.total_steps = check_whole("total_steps", total_steps, at_least=1)
        self.block_shape = as_block_shape(block_shape)
        self.schedule = self._checked(schedule or Schedule())
        self.gates: list[Gate] = []
        self._layers: list[keras.Layer] = []
        self.variables: list[keras.Variable] = []
        #: The gated weights, in the order of `gates`.
        self.weights: list[keras.Variable] = []
        #: Layers with weights that `prune` did not add gates to: path -> reason.
        self.ungated_layers: dict[str, str] = {}

    def _checked(self, schedule: Schedule) -> Schedule:
        if not isinstance(schedule, Schedule):
            raise InputError(f"schedule must be a Schedule, such as Schedule(begin=0.1): got {schedule!r}")
        default = Schedule()
        for name, value in schedule.get_config().items():
            if name not in self.schedule_options and value != getattr(default, name):
                used = " and ".join(self.schedule_options) or "nothing"
                raise InputError(
                    f"{type(self).__name__} does not use the schedule's {name}, but {used}: leave it out"
                )
        return schedule.in_shares(self.total_steps)

    def attach(self, model: keras.Model) -> None:
        """Takes control of the gates of `model`, except fixed ones, and creates the method's state.

        Raises:
            InputError: the method already prunes a model, or cannot reach its target with this one.
        """
        if self.gates:
            raise InputError("this pruning method already prunes a model: create one method per model")
        self.gates, self.weights, self._layers = [], [], []
        for layer in gated_layers(model):
            for name, gate in layer.gate_of.items():
                if not gate.fixed:
                    self.gates.append(gate)
                    self.weights.append(layer.stored_weight(name))
                    self._layers.append(layer)
        self.gated_size = sum(gate.size for gate in self.gates)
        self._check_reachable()
        for gate in self.gates:
            # Keras compiles models with XLA on a GPU by default, if all layers support it.
            gate.supports_jit, gate.samples = self.supports_jit, self.samples_gates
            if not self.trains_gates:
                gate.trainable = False
        self.steps_done = self.add_state("steps_done", (), "int64")

    def detach(self) -> None:
        """Drops the gates and all state, as if `attach` had never been called."""
        for gate in self.gates:
            if gate.owner is self:
                gate.owner = None
        self.gates, self.weights, self._layers, self.variables = [], [], [], []

    def classes(self) -> list[tuple[str, int, tuple[int, int]]]:
        """Path, number of weights and (inputs, outputs) of a block of each gated kernel or embedding table.

        Examples:
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
        """A printable list of the gated weights, and of the layers without gates, with the reasons.

        Examples:
            >>> import tfsparsecap as sc
            >>> layers = [keras.Input((8,)), keras.layers.Dense(4, name="score")]
            >>> print(sc.prune(keras.Sequential(layers, name="net"), sc.Magnitude(0.5)).pruning.describe())
            32 weights have gates, in 1 tensor:
              net/score/kernel  32
        """
        classes = self.classes()
        width = max(len(path) for path, *_ in classes)
        digits = max(len(str(size)) for _, size, _ in classes)
        lines = [f"{self.gated_size} weights have gates, in {len(classes)} tensor{'s' * (len(classes) > 1)}:"]
        for path, size, block in classes:
            blocks = "" if block == (1, 1) else f"  in blocks of {block}"
            lines.append(f"  {path:{width}}  {size:>{digits}}{blocks}")
        reasons: dict[str, list[str]] = {}
        for path, reason in self.ungated_layers.items():
            reasons.setdefault(reason, []).append(path)
        for reason, paths in reasons.items():
            more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
            lines.append(f"without gates: {', '.join(paths[:3])}{more} ({reason})")
        return "\n".join(lines)

    def _check_reachable(self) -> None:
        """Raises InputError if the blocks are too coarse for the sparsity."""
        if not self.gates or self.sparsity == 0.0:
            return
        share = self.most_closed() / self.gated_size
        if not 0.0 < share < 1.0 or abs(share - self.sparsity) > _TOLERANCE:
            coarsest = max(gate.block_size for gate in self.gates)
            raise InputError(
                f"a sparsity of {self.sparsity} cannot be reached: the {self.gated_size} weights are pruned"
                f" in blocks of up to {coarsest}, and the nearest sparsity below is {share:.3f}; give a"
                " smaller block_shape, or skip the smallest layers with skip="
            )

    def most_closed(self) -> int:
        """How many weights whole blocks can remove without exceeding the target, over all layers together.

        With blocks of several sizes `keep_masks` may remove fewer: it keeps a small block that scores higher
        than a larger one that does not fit.
        """
        target, closed = round(self.sparsity * self.gated_size), 0
        for gate in sorted(self.gates, key=lambda gate: -gate.block_size):
            closed += min(target - closed, gate.size) // gate.block_size * gate.block_size
        return closed

    @property
    def moves(self) -> list[bool]:
        """Whether the method may change each gate: not while its layer is frozen (without `prune_frozen`)."""
        return [
            not gate.fixed and (gate.independent or layer.trainable)
            for gate, layer in zip(self.gates, self._layers, strict=True)
        ]

    @property
    def moving_gates(self) -> list[Gate]:
        """The gates that the method may change."""
        return list(itertools.compress(self.gates, self.moves))

    @property
    def moving_size(self) -> int:
        """Number of weights behind the gates that the method may change: the target is a share of them."""
        return sum(gate.size for gate in self.moving_gates)

    def add_state(
        self, name: str, shape: tuple[Any, ...], dtype: str = "float32", value: Any = 0
    ) -> keras.Variable:
        """Creates a variable that is saved and restored with the optimizer's variables."""
        name = self.state_prefix + name
        # Keras's state trees need unique paths.
        if name in {variable.name for variable in self.variables}:
            name = f"{name}_{len(self.variables)}"
        variable = keras.Variable(
            keras.ops.full(shape, value, dtype), trainable=False, dtype=dtype, autocast=False, name=name
        )
        self.variables.append(variable)
        return variable

    def wrap(self, optimizer: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:
        """Returns the optimizer to train with: `optimizer` for the weights, this method for the gates.

        A `LossScaleOptimizer` stays outermost, so that the gates' gradients are unscaled too. An optimizer
        that this method has already wrapped is returned unchanged.
        """
        if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
            optimizer.inner_optimizer = self.wrap(optimizer.inner_optimizer)
            optimizer.inner_optimizer.scaled = True
            return optimizer
        if isinstance(optimizer, PruningOptimizer):
            if optimizer.method is self:
                return optimizer
            raise InputError(
                "this optimizer updates the gates of another model: create one optimizer per model"
            )
        return PruningOptimizer(optimizer, self)

    @property
    def target(self) -> float | None:
        """The sparsity at the end of a complete training; None if not known in advance."""
        return self.sparsity

    def weights_learn(self) -> tf.Tensor | None:
        """Whether the current step trains the weights: bool scalar, or None if every step does.

        If it does not, the optimizer is not called at all: no decay, no constraint, no schedule.
        """
        return None

    def iterations(self, optimizer: keras.optimizers.Optimizer) -> keras.Variable | tf.Tensor:
        """Number of training steps so far, int64 scalar, given the optimizer of the weights.

        It differs from the optimizer's own count if the method skips optimizer steps or resets the optimizer.
        """
        return optimizer.iterations

    @property
    def complete_after(self) -> int | None:
        """Number of steps after which the sparsity is the requested one; None if not known."""
        return None

    def finalize(self) -> str | None:
        """Restores the state to keep, if that is not the last one. `strip_pruning` calls it.

        Returns:
            A warning if pruning is incomplete, else None.
        """
        steps = int(tf.convert_to_tensor(self.steps_done))
        # Layers may have been frozen before the gates closed, or afterwards.
        reached = max(float(self.current_sparsity()), float(self.moving_sparsity()))
        target, total = self.target, self.total_steps
        if target is None:
            return None
        if not steps:
            if reached > 0 or target <= 0.01:  # closed by prune, or loaded without the optimizer's state
                return None
            long = "" if total is None else f" for total_steps={total}"
            return (
                f"the model was not trained after prune, so its sparsity is 0.0% instead of {target:.1%}:"
                f" train it first{long}, with fit or the optimizer that model.pruning.wrap(optimizer) returns"
            )
        complete = self.complete_after
        coarsest = max(gate.block_size for gate in self.gates) / max(1, self.moving_size)
        if complete is not None and steps >= complete and reached < target - max(_TOLERANCE, coarsest):
            return (
                f"the sparsity is {reached:.1%} instead of {target:.1%}, although the pruning was complete"
                f" after {complete} of {steps} steps: if weights of an earlier epoch were restored"
                " (restore_best_weights), consider only epochs after that step, such as with"
                " EarlyStopping(start_from_epoch=...); layers that were frozen in that step were not pruned"
            )
        if total is not None and steps < total and reached < target - 0.01:
            return (
                f"the training stopped after {steps} of total_steps={total}, at a sparsity of {reached:.1%}"
                f" instead of {target:.1%}: continue the training, or give the method total_steps={steps}"
            )
        if reached < target - _TOLERANCE:
            return f"the pruning ended at a sparsity of {reached:.1%} instead of {target:.1%}: {self.advice}"
        return None

    def step(self, gate_gradients: list[tf.Tensor | None]) -> None:
        """Updates the gates once, inside the compiled training step.

        With several replicas it runs on each, with the same gradients, and must make the same update.

        Args:
            gate_gradients: gradients of the loss in the order of `gates`, float32 of the logits' shapes,
                summed over all replicas; None for gates that are not trained.
        """
        raise NotImplementedError

    def close(self, keep: list[tf.Tensor]) -> None:
        """Sets the gates, except those of frozen layers.

        Args:
            keep: bool tensors of the logits' shapes, in the order of `gates`, True for open gates.
        """
        for gate, moves, mask in zip(self.gates, self.moves, keep, strict=True):
            if moves:
                gate.logits.assign(tf.where(mask, INITIAL_LOGIT, -INITIAL_LOGIT))

    def close_lowest(
        self, scores: list[tf.Tensor], closed_weights: tf.Tensor | int, minimum_density: float = 0.0
    ) -> None:
        """Closes the gates with the lowest scores, over all layers together, and opens all others.

        Gates of frozen layers are not ranked and do not change.

        Args:
            scores: float32 tensors of the logits' shapes, in the order of `gates`, values at least 0.
            closed_weights: number of weights to close, of `moving_size`.
            minimum_density: share of its weights that each layer keeps at least.
        """
        moves = self.moves
        if not any(moves):
            return
        sizes = [gate.block_size for gate in self.moving_gates]
        ranked = list(itertools.compress(scores, moves))
        if minimum_density:
            ranked = [
                with_floor(score, gate.block_size, math.ceil(minimum_density * gate.size))
                for score, gate in zip(ranked, self.moving_gates, strict=True)
            ]
        masks = iter(keep_masks(ranked, sizes, tf.cast(closed_weights, tf.int64)))
        self.close(
            [next(masks) if moving else score > 0.0 for moving, score in zip(moves, scores, strict=True)]
        )

    def current_sparsity(self) -> tf.Tensor:
        """Share of the gated weights that rounded gates remove: float32 scalar in [0, 1]."""
        return _sparsity(self.gates)

    def moving_sparsity(self) -> tf.Tensor:
        """The sparsity of the gates that the method may change; of all gates if it may change none."""
        return _sparsity(self.moving_gates or self.gates)

    def logs(self) -> dict[str, tf.Tensor]:
        """Values for the progress bar: name -> float32 scalar."""
        return {"sparsity": self.current_sparsity()}

    def get_config(self) -> dict[str, Any]:
        config = {
            name: getattr(self, name)
            for name, parameter in inspect.signature(type(self)).parameters.items()
            if parameter.kind is not parameter.VAR_KEYWORD
        }
        config["block_shape"] = list(self.block_shape)
        if "schedule" in config:
            config["schedule"] = keras.saving.serialize_keras_object(self.schedule)
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        if "schedule" in config:
            config = {**config, "schedule": keras.saving.deserialize_keras_object(config["schedule"])}
        return cls(**config)


def _sparsity(gates: list[Gate]) -> tf.Tensor:
    size = sum(gate.size for gate in gates)
    return (size - tf.add_n([gate.open_count() for gate in gates])) / size
