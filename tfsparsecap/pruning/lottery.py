"""Lottery tickets: the weights that grew large, from the values that they started with."""

import math

import keras
import tensorflow as tf

from tfsparsecap.errors import InputError
from tfsparsecap.pruning.fixed_mask import SCHEMES, FixedMask
from tfsparsecap.pruning.registry import register


@register("lottery")
class LotteryTicket(FixedMask):
    """Trains, prunes by size, puts what is left back to where it started, and trains that.

    A training of `total_steps` is `rounds + 1` trainings of equal length. At the end of each but the last the
    smallest weights go, to a sparsity of `1 - (1 - sparsity) ** (round / rounds)`, and all weights, biases
    too, become what they were at the start; what the optimizer remembers of them is forgotten. Its learning
    rate is not: a schedule goes on, and does not begin again with each round.

    Args:
        sparsity: share of the gated weights to remove in the end.
        total_steps: optimizer steps of all rounds together; at least `rounds + 1`.
        block_shape: (inputs, outputs) of a block; blocks go by the mean size of their weights.
        scheme: which weights are compared with each other, see `Magnitude`.
        rounds: 1 is one-shot; more is iterative.
        rewind_to: where the values that weights go back to are taken, as a share of the first round: 0 is the
            initialisation, a little more is late rewinding.

    Raises:
        InputError: an argument out of range.

    Reference:
        Frankle and Carbin, "The Lottery Ticket Hypothesis", https://arxiv.org/abs/1803.03635; late rewinding:
        Frankle et al., https://arxiv.org/abs/1903.01611.

    Example:
        >>> LotteryTicket(sparsity=0.9, total_steps=900, rounds=2).pruning_steps
        [300, 600]
    """

    def __init__(
        self,
        sparsity: float,
        total_steps: int,
        *,
        block_shape=(1, 1),
        scheme: str = "blind",
        rounds: int = 1,
        rewind_to: float = 0.0,
    ):
        super().__init__(sparsity, block_shape=block_shape)
        if scheme not in SCHEMES:
            raise InputError(f"scheme is {scheme!r}: choose one of {', '.join(SCHEMES)}")
        if rounds < 1:
            raise InputError(f"rounds must be at least 1: got {rounds!r}")
        if total_steps < rounds + 1:
            raise InputError(
                f"total_steps is {total_steps!r}: {rounds} rounds and the training of the ticket need at"
                f" least {rounds + 1}"
            )
        if not 0.0 <= rewind_to < 1.0:
            raise InputError(f"rewind_to is a share of the first round, 0 to below 1: got {rewind_to!r}")
        self.total_steps, self.scheme = int(total_steps), scheme
        self.rounds, self.rewind_to = rounds, rewind_to
        span = self.total_steps / (rounds + 1)
        #: After how many steps weights go.
        self.pruning_steps = [math.floor(span * number) for number in range(1, rounds + 1)]
        self.rewind_step = math.floor(span * rewind_to)

    def attach(self, model: keras.Model) -> None:
        super().attach(model)
        logits = {id(gate.logits) for gate in self.gates}
        self._moving = [variable for variable in model.trainable_variables if id(variable) not in logits]
        self._start = [
            self.add_state("start", tuple(variable.shape), variable.dtype) for variable in self._moving
        ]
        self._remember()
        self._optimizer: keras.optimizers.Optimizer | None = None

    def wrap(self, optimizer: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:
        wrapped = super().wrap(optimizer)
        inner = getattr(wrapped, "inner_optimizer", None)
        if not isinstance(wrapped, keras.optimizers.LossScaleOptimizer):
            self._optimizer = inner
        return wrapped

    def step(self, gate_gradients):
        super().step(gate_gradients)
        done = tf.convert_to_tensor(self.steps_done)
        if self.rewind_step:
            tf.cond(tf.equal(done, self.rewind_step), self._remember, lambda: tf.no_op())
        for number, after in enumerate(self.pruning_steps, 1):
            sparsity = 1.0 - (1.0 - self.sparsity) ** (number / self.rounds)
            tf.cond(tf.equal(done, after), lambda sparsity=sparsity: self._draw(sparsity), lambda: tf.no_op())

    def _remember(self) -> tf.Operation:
        for start, variable in zip(self._start, self._moving, strict=True):
            start.assign(variable)
        return tf.no_op()

    def _draw(self, sparsity: float) -> tf.Operation:
        self.close(self.smallest_kept(sparsity, self.scheme))
        for start, variable in zip(self._start, self._moving, strict=True):
            variable.assign(start)
        # Momentum of the training before would carry the ticket away from its start.
        for variable in self._optimizer.variables if self._optimizer is not None else ():
            if len(variable.shape):
                variable.assign(tf.zeros_like(variable))
        return tf.no_op()

    def get_config(self) -> dict:
        return {
            **super().get_config(),
            "total_steps": self.total_steps,
            "scheme": self.scheme,
            "rounds": self.rounds,
            "rewind_to": self.rewind_to,
        }
