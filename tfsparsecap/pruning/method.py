"""What every pruning method is: gates it writes, a state of its own, and a step after each optimizer step."""

import keras
import tensorflow as tf

from tfsparsecap.errors import InputError
from tfsparsecap.gates import INITIAL_LOGIT, Gate, as_block_shape, gates
from tfsparsecap.pruning.optimizer import PruningOptimizer


class PruningMethod:
    """Base class of the pruning methods.

    A method is given to `tfsparsecap.prune`, which puts gates on the model's layers and calls `attach`. From
    then on `PruningOptimizer` calls `step` once after each optimizer step, inside the compiled training step.

    Args:
        sparsity: share of the gated weights to remove, 0 to below 1.
        block_shape: (inputs, outputs) weights to a gate.

    Raises:
        InputError: a sparsity outside [0, 1) or a malformed block shape.
    """

    #: Whether XLA can compile `step`. Keras compiles models with XLA by itself where there is a GPU.
    supports_jit = False

    def __init__(self, sparsity: float, *, block_shape=(1, 1)):
        if not 0.0 <= sparsity < 1.0:
            raise InputError(f"sparsity must be at least 0 and below 1, such as 0.95: got {sparsity!r}")
        self.sparsity = float(sparsity)
        self.block_shape = as_block_shape(block_shape)
        self.gates: list[Gate] = []
        self.variables: list[keras.Variable] = []
        #: Path -> reason of the layers with weights that `prune` put no gates on.
        self.left_alone: dict[str, str] = {}

    def attach(self, model: keras.Model) -> None:
        """Takes over the gates of `model` and makes the method's own state."""
        if self.gates:
            raise InputError(
                "this pruning method already prunes a model: give every model a method of its own"
            )
        self.gates = gates(model)
        self.gated_size = sum(gate.size for gate in self.gates)
        for gate in self.gates:
            gate.supports_jit = self.supports_jit
        self.steps_done = self.add_state("steps_done", (), "int64")

    def add_state(self, name: str, shape: tuple, dtype: str = "float32", value=0) -> keras.Variable:
        """Makes a variable that is saved with the optimizer's and restored on resuming."""
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

    def weights_learn(self) -> tf.Tensor | None:
        """Whether the step that is being taken trains the weights, bool scalar; None where all steps do."""
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
