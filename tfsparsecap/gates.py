"""Gates: learnable on/off switches on weights, sampled with straight-through gradients.

A gated weight is used as `W' = W * z(sigmoid(G))` (SMP paper, equations 1 to 3). `G` are the logits of the
gates; `z` samples from a Bernoulli distribution in training, rounds otherwise, and is the identity in the
backward pass (equation 8).

Each gate is sampled once per forward pass, even if its weight is read several times (`draws.py` defines a
pass). Keras does not treat a custom loop over layers as one pass: wrap it in `sample_gates_once`, so that all
time steps use the same weights.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfsparsecap.core import draws, keras_internals
from tfsparsecap.errors import InputError, warn_caller

#: Initial logit of all gates in the papers: sigmoid(5) = 0.9933, so a new gate is almost always open.
INITIAL_LOGIT = 5.0
# Without the name of a layer, so that Python shows it once for all of them.
_NOT_DRIVEN = (
    "gated layers are trained without a pruning method, so that their gates stay open unless the loss closes"
    " them: call sc.prune(model, ...), which drives the gates, before the training"
)


@tf.custom_gradient
def straight_through_round(probability: tf.Tensor) -> Any:
    """Rounds probabilities to 0 or 1 (one half rounds down); the gradient passes unchanged.

    Args:
        probability: float tensor of any shape, values in [0, 1].

    Returns:
        Zeros and ones of the same shape and dtype.

    Examples:
        >>> straight_through_round(tf.constant([0.2, 0.7])).numpy().tolist()
        [0.0, 1.0]
    """
    return tf.cast(probability > 0.5, probability.dtype), lambda gradient: gradient


@tf.custom_gradient
def straight_through_bernoulli(probability: tf.Tensor, seed: tf.Tensor) -> Any:
    """Samples 1 with the given probability, else 0; the gradient passes unchanged (the seed gets none).

    A sample uses 16 random bits: the probability is accurate to 2^-16, and exact at 0 and 1. This takes half
    as long as 32 bits, and sampling is most of the cost of gates.

    Args:
        probability: float tensor of any static shape, values in [0, 1].
        seed: int32 or int64 [2], the stateless seed: equal seeds give equal samples.

    Returns:
        Zeros and ones of the same shape and dtype.

    Examples:
        >>> sample = straight_through_bernoulli(tf.fill([10_000], 0.25), tf.constant([1, 2]))
        >>> 0.23 < float(tf.reduce_mean(sample)) < 0.27
        True
    """
    size = probability.shape.num_elements()
    # XLA supports 32-bit seeds only.
    seed = tf.cast(tf.math.floormod(seed, tf.int32.max), tf.int32)
    pairs = tf.random.stateless_uniform([(size + 1) // 2], seed, minval=None, maxval=None, dtype=tf.int32)
    noise = tf.reshape(tf.reshape(tf.bitcast(pairs, tf.int16), [-1])[:size], probability.shape)
    threshold = tf.cast(probability, tf.float32) * 2.0**16 - 2.0**15
    sample = tf.cast(noise, tf.float32) < threshold
    return tf.cast(sample, probability.dtype), lambda gradient: (gradient, None)


def fitting_block(rows: int, columns: int, block_shape: tuple[int, int]) -> tuple[int, int]:
    """Returns the block that tiles a matrix of `rows` x `columns`: `block_shape`, or a divisor of it.

    It is the greatest common divisor, not the largest size that fits, so that a (16, 1) block shrinks to
    (8, 1) or (4, 1), which sparse kernels on phones still support.

    Examples:
        >>> fitting_block(768, 10, (16, 1)), fitting_block(24, 10, (16, 1)), fitting_block(7, 10, (16, 1))
        ((16, 1), (8, 1), (1, 1))
    """
    return math.gcd(rows, block_shape[0]), math.gcd(columns, block_shape[1])


def as_block_shape(block_shape: Any) -> tuple[int, int]:
    """Checks a block shape: two positive integers, in Keras's (inputs, outputs) order.

    Raises:
        InputError: the block shape is anything else.
    """
    shape = tuple(block_shape) if isinstance(block_shape, (tuple, list, np.ndarray)) else ()
    if len(shape) != 2 or not all(isinstance(size, (int, np.integer)) and size > 0 for size in shape):
        raise InputError(
            "block_shape must be two positive integers (inputs, outputs), such as (1, 1) or (16, 1): "
            f"got {block_shape!r}"
        )
    return int(shape[0]), int(shape[1])


@keras.saving.register_keras_serializable("tfsparsecap")
class Gate(keras.layers.Layer):
    """The gates of a weight, one per block.

    The weight is treated as a matrix [rows, columns] = [all axes that are summed over, outputs], which for a
    Dense kernel is the kernel itself; `block_shape` tiles that matrix. If it does not divide the matrix, a
    smaller block is used (see `fitting_block`).

    Args:
        block_shape: (inputs, outputs) of a block; (1, 1) is one gate per weight.
        initial_logit: initial value of all gates.
        seed: seed of the samples; None derives it from Keras's global seed.

    Call arguments:
        weight: float tensor or variable of the shape given to `build`, any float dtype.
        training: True samples; False and None round. The result is `weight * z(sigmoid(logits))`, of the
            shape and dtype of `weight`.

    Reference:
        Tan et al., "End-to-End Supermask Pruning: Learning to Prune Image Captioning Models", equations 1
        to 3.

    Examples:
        >>> gate = Gate(block_shape=(2, 1))
        >>> gate.build((4, 3))
        >>> gate.logits.shape, gate(tf.ones([4, 3])).shape
        (TensorShape([2, 3]), TensorShape([4, 3]))
    """

    def __init__(
        self,
        block_shape: Sequence[int] = (1, 1),
        initial_logit: float = INITIAL_LOGIT,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        # The layer that owns the weight has already cast it (mixed precision), so Keras must not cast it.
        super().__init__(autocast=False, **kwargs)
        self.block_shape = as_block_shape(block_shape)
        self.initial_logit = initial_logit
        self.seed = seed
        #: Whether gates are sampled in training. Methods that rank gates turn this off to always round.
        self.samples = True
        #: Whether weights behind closed gates also get a (straight-through) gradient and keep learning.
        self.closed_weights_learn = False
        #: Whether pruning methods never change this gate.
        self.fixed = False
        #: Whether `trainable` is kept when the enclosing layer is frozen or unfrozen.
        self.independent = False
        #: The pruning method that controls this gate; None if there is none.
        self.owner: Any = None
        #: Whether a pruning method controls it, or has done so.
        self.driven = False
        self.seed_generator = keras.random.SeedGenerator(seed)

    def build(self, weight_shape: tuple[int, ...], rows: int | None = None) -> None:
        """Creates the logits for a weight of `weight_shape`.

        Args:
            weight_shape: shape of the weight.
            rows: number of rows of the weight as a matrix; None if the last axis holds the outputs and
                all others are summed over.
        """
        size = math.prod(weight_shape)
        self.weight_shape = tuple(weight_shape)
        self.rows = rows or size // weight_shape[-1]
        self.columns = size // self.rows
        self.block = fitting_block(self.rows, self.columns, self.block_shape)
        self.logits = self.add_weight(
            name="logits",
            shape=(self.rows // self.block[0], self.columns // self.block[1]),
            initializer=keras.initializers.Constant(self.initial_logit),
            dtype="float32",
            autocast=False,
        )

    def fix(self) -> None:
        """Makes the gates constant: rounded, not trained, not changed by pruning methods."""
        self.fixed, self.samples, self.trainable = True, False, False
        self.independent = True

    @property
    def trainable(self) -> bool:
        """Whether the gates are trained; follows the enclosing layer unless they are `independent`."""
        return bool(keras.layers.Layer.trainable.fget(self))

    @trainable.setter
    def trainable(self, value: bool) -> None:
        if not self.independent:
            keras.layers.Layer.trainable.fset(self, value)

    @property
    def size(self) -> int:
        """Number of weights behind all gates."""
        return self.rows * self.columns

    @property
    def block_size(self) -> int:
        """Number of weights behind one gate."""
        return self.block[0] * self.block[1]

    def __call__(self, weight: keras.Variable | tf.Tensor, **kwargs: Any) -> tf.Tensor:
        # Read variables here, in the precision of the enclosing layer, not as inputs of this layer.
        return super().__call__(tf.convert_to_tensor(weight), **kwargs)

    def call(self, weight: tf.Tensor, training: bool | None = None) -> tf.Tensor:
        if self._samples(training) and not self.driven:
            warn_caller(_NOT_DRIVEN)
        return self._product(weight, tf.cast(self.mask(training), weight.dtype))

    def _product(self, weight: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """`W' = weight * expand(mask)`, with gradients `block_sum(dL/dW' * W)` and `dL/dW' [* mask]`."""
        through = self.closed_weights_learn

        @tf.custom_gradient
        def product(weight: tf.Tensor, mask: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
            def backward(gradient: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                of_mask = self.block_sum(gradient * weight)
                return (gradient if through else gradient * self.expand(mask)), of_mask

            return weight * self.expand(mask), backward

        return product(weight, mask)

    def read(self, weight: keras.Variable) -> tf.Tensor:
        """Returns the gated weight of the layer that owns this gate, sampled once per forward pass.

        Every read within a pass, or inside `sample_gates_once`, returns the same tensor. Custom layers can
        use it too: `matmul(inputs, self.gate.read(self.kernel))`.

        Args:
            weight: variable of the shape given to `build`; always the same one.

        Raises:
            InputError: gates are sampled inside `keras.remat`, which would sample them again for the
                gradients.
        """
        if keras_internals.recording_is_stopped():
            if not self._samples(keras_internals.training_of_call()):
                # The gradients are computed later, from the variables that are read here.
                return self.call(tf.convert_to_tensor(weight), training=False)
            if keras_internals.will_be_recomputed():
                raise InputError(
                    f"{self.path or self.name} samples its gates, which keras.remat (tf.recompute_grad) would"
                    " sample again for the gradients: prune with a method that does not sample, such as"
                    " Supermask, or call the layer without remat"
                )
        held = draws.find_in_scopes(id(self))
        if held is None:
            training = keras_internals.training_of_call()
            key = id(self), training if isinstance(training, bool | None) else id(training)
            shared = draws.draws_of_pass()
            held = shared.find(*key) if shared else None
            if held is None:
                held = self.call(tf.convert_to_tensor(weight), training)
                if shared:
                    shared.keep(held, *key)
        return tf.cast(held, weight.dtype)

    def mask(self, training: bool | None = False) -> tf.Tensor:
        """Returns the states of the gates: float32 zeros and ones, one per block; sampled in training."""
        probability = tf.sigmoid(tf.convert_to_tensor(self.logits))
        if not self._samples(training):
            return straight_through_round(probability)
        seed = self.seed_generator.next()
        if training is True:
            return straight_through_bernoulli(probability, seed)
        return tf.cond(
            tf.cast(training, tf.bool),
            lambda: straight_through_bernoulli(probability, seed),
            lambda: straight_through_round(probability),
        )

    def _samples(self, training: Any) -> bool:
        return self.samples and self.trainable and training is not None and training is not False

    def expand(self, mask: tf.Tensor) -> tf.Tensor:
        """Expands values of the logits' shape, one per block, to the shape of the weight."""
        rows, columns = self.block
        if rows == columns == 1:
            return tf.reshape(mask, self.weight_shape)
        tiled = tf.broadcast_to(
            mask[:, None, :, None], (self.rows // rows, rows, self.columns // columns, columns)
        )
        return tf.reshape(tiled, self.weight_shape)

    def block_sum(self, values: tf.Tensor) -> tf.Tensor:
        """Sums values of the weight's shape over each block, to the shape of the logits."""
        rows, columns = self.block
        tiled = tf.reshape(values, (self.rows // rows, rows, self.columns // columns, columns))
        return tf.reduce_sum(tiled, (1, 3))

    def open_count(self) -> tf.Tensor:
        """Number of weights behind open (rounded) gates: float32 scalar."""
        # An integer sum: in float32, a sum of ones stops at 2**24.
        opened = tf.reduce_sum(tf.cast(tf.convert_to_tensor(self.logits) > 0.0, tf.int32))
        return tf.cast(opened, tf.float32) * self.block_size

    def save_own_variables(self, store: dict[str, Any]) -> None:
        super().save_own_variables(store)
        # Keras does not save the state of random generators; a resumed training needs it for identical
        # samples.
        store["seed_state"] = self.seed_generator.state.numpy()

    def load_own_variables(self, store: dict[str, Any]) -> None:
        self.logits.assign(store["0"])
        self.seed_generator.state.assign(store["seed_state"])

    def quantize(self, *args: Any, **kwargs: Any) -> None:
        """Refuses `model.quantize`, which skips gated layers, so that their model would stay as it is."""
        raise InputError("the model still has gates: call sc.strip_pruning on it before model.quantize")

    def compute_output_shape(self, weight_shape: tuple[int, ...]) -> tuple[int, ...]:
        return weight_shape

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "block_shape": list(self.block_shape),
            "initial_logit": self.initial_logit,
            "seed": self.seed,
        }


def gated_layers(model: keras.Layer) -> list[keras.Layer]:
    """Returns the layers of `model` (or `model` itself) that own gates: each once, in Keras's order."""
    seen: dict[int, keras.Layer] = {}
    for layer in keras_internals.nested_layers(model):
        if getattr(layer, "gate_of", None):
            seen.setdefault(id(layer), layer)
    return list(seen.values())


def gates(model: keras.Layer) -> list[Gate]:
    """Returns all gates in `model`."""
    return [gate for layer in gated_layers(model) for gate in layer.gate_of.values()]


def weights_except_gates(model: keras.Layer) -> list[keras.Variable]:
    """Returns all weights of `model` except the logits of gates, in Keras's order."""
    logits = {id(gate.logits) for gate in gates(model)}
    return [weight for weight in model.weights if id(weight) not in logits]


@contextlib.contextmanager
def sample_gates_once(model: keras.Layer, training: bool | None = None) -> Iterator[None]:
    """Samples every gate of `model` once; inside the block all its layers use that sample, even in loops.

    Gates that an outer `sample_gates_once` has sampled keep that sample.

    Args:
        model: any layer or model; without gates this does nothing.
        training: as in `call`; None is the training flag of the enclosing Keras call.

    Examples:
        >>> dense = keras.layers.Dense(3)
        >>> with sample_gates_once(dense, training=True):
        ...     outputs = [dense(tf.ones([1, 2])) for _ in range(4)]
    """
    if training is None:
        training = keras_internals.training_of_call()
    with draws.scope() as held:
        for layer in gated_layers(model):
            for name, gate in layer.gate_of.items():
                if draws.find_in_scopes(id(gate)) is None:
                    weight = _in_compute_dtype(layer, layer.stored_weight(name))
                    held.keep(gate.call(weight, training), id(gate))
        yield


def _in_compute_dtype(layer: keras.Layer, weight: keras.Variable | tf.Tensor) -> tf.Tensor:
    """Returns a weight as `layer` reads it: the enclosing model may compute in another precision."""
    raw = keras_internals.uncast_value(weight) if isinstance(weight, keras.Variable) else weight
    return tf.cast(raw, layer.compute_dtype)
