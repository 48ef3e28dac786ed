"""Gates: learnable on/off switches on weights, sampled with straight-through gradients.

A gated weight is used as `W' = W * z(sigmoid(G))` (SMP paper, equation 1). `G` are the logits of the
gates; `z` draws from a Bernoulli distribution while training and rounds otherwise, and is the identity in
the backward pass.

Each gate is sampled once per forward pass, however often its weight is read (`draws.py` defines a pass).
Keras does not know a custom loop over layers as one pass: wrap it in `sample_gates_once`, so that all time
steps see the same weights.
"""

import contextlib
import math
from collections.abc import Iterator

import keras
import tensorflow as tf

from tfsparsecap import draws, keras_internals
from tfsparsecap.errors import InputError

#: The papers' starting value of every gate: sigmoid(5) = 0.9933, so a fresh gate is almost always open.
INITIAL_LOGIT = 5.0


@tf.custom_gradient
def straight_through_round(probability: tf.Tensor):
    """Rounds probabilities to 0 or 1 (one half rounds down); the gradient passes unchanged.

    Args:
        probability: float tensor of any shape, values in [0, 1].

    Returns:
        Zeros and ones of the same shape and dtype.

    Example:
        >>> straight_through_round(tf.constant([0.2, 0.7])).numpy().tolist()
        [0.0, 1.0]
    """
    return tf.cast(probability > 0.5, probability.dtype), lambda gradient: gradient


@tf.custom_gradient
def straight_through_bernoulli(probability: tf.Tensor, seed: tf.Tensor):
    """Draws 1 with the given probability, else 0; the gradient passes unchanged (none to the seed).

    A draw has 16 random bits: the probability is met within 2^-16, and exactly at 0 and 1. That takes half
    the time of 32 bits, and the draw is most of what gates cost.

    Args:
        probability: float tensor of any static shape, values in [0, 1].
        seed: int32 or int64 [2], the stateless seed: equal seeds give equal draws.

    Returns:
        Zeros and ones of the same shape and dtype.

    Example:
        >>> drawn = straight_through_bernoulli(tf.fill([10_000], 0.25), tf.constant([1, 2]))
        >>> 0.23 < float(tf.reduce_mean(drawn)) < 0.27
        True
    """
    size = probability.shape.num_elements()
    # XLA takes 32-bit seeds only.
    seed = tf.cast(tf.math.floormod(seed, tf.int32.max), tf.int32)
    pairs = tf.random.stateless_uniform([(size + 1) // 2], seed, minval=None, maxval=None, dtype=tf.int32)
    noise = tf.reshape(tf.reshape(tf.bitcast(pairs, tf.int16), [-1])[:size], probability.shape)
    threshold = tf.cast(probability, tf.float32) * 2.0**16 - 2.0**15
    drawn = tf.cast(noise, tf.float32) < threshold
    return tf.cast(drawn, probability.dtype), lambda gradient: (gradient, None)


def fitting_block(rows: int, columns: int, block_shape: tuple[int, int]) -> tuple[int, int]:
    """The block that tiles a matrix of `rows` x `columns` without a remainder: `block_shape`, or what it
    shares with the sides.

    The greatest common divisor is taken rather than the largest size that fits, so that a (16, 1) block
    shrinks to (8, 1) or (4, 1), which the phone's kernels still know.

    Example:
        >>> fitting_block(768, 10, (16, 1)), fitting_block(24, 10, (16, 1)), fitting_block(7, 10, (16, 1))
        ((16, 1), (8, 1), (1, 1))
    """
    return math.gcd(rows, block_shape[0]), math.gcd(columns, block_shape[1])


def as_block_shape(block_shape) -> tuple[int, int]:
    """Checks a block shape: two positive integers, in Keras's (inputs, outputs) order.

    Raises:
        InputError: anything else.
    """
    shape = tuple(block_shape) if isinstance(block_shape, (tuple, list)) else ()
    if len(shape) != 2 or not all(isinstance(size, int) and size > 0 for size in shape):
        raise InputError(
            "block_shape must be two positive integers (inputs, outputs), such as (1, 1) or (16, 1): "
            f"got {block_shape!r}"
        )
    return shape


@keras.saving.register_keras_serializable("tfsparsecap")
class Gate(keras.layers.Layer):
    """One gate for each block of a weight: the one owner of a mask.

    The weight is looked at as a matrix [rows, columns] = [everything that is summed over, outputs], which
    for a Dense kernel is the kernel itself; `block_shape` tiles that matrix. Where it does not divide, the
    largest block that does is taken.

    Args:
        block_shape: (inputs, outputs) of a block; (1, 1) is a gate for every weight.
        initial_logit: where all gates start.
        seed: of the draws; None takes one from Keras's global seed.

    Call arguments:
        weight: float tensor or variable of the shape given to `build`, any float dtype.
        training: True draws, False and None round.

    Returns:
        `weight * z(sigmoid(logits))`, of the shape and dtype of `weight`.

    Reference:
        Tan et al., "End-to-End Supermask Pruning: Learning to Prune Image Captioning Models", equations 1
        to 3.

    Example:
        >>> gate = Gate(block_shape=(2, 1))
        >>> gate.build((4, 3))
        >>> gate.logits.shape, gate(tf.ones([4, 3])).shape
        (TensorShape([2, 3]), TensorShape([4, 3]))
    """

    def __init__(
        self, block_shape=(1, 1), initial_logit: float = INITIAL_LOGIT, seed: int | None = None, **kwargs
    ):
        # The weight keeps the dtype it is read in (mixed precision casts it before), so Keras must not
        # cast it again.
        super().__init__(autocast=False, **kwargs)
        self.block_shape = as_block_shape(block_shape)
        self.initial_logit = initial_logit
        self.seed = seed
        #: Whether training draws the gates; a pruning method that ranks them turns it off, and they are
        #: rounded always.
        self.samples = True
        #: Whether the gradient passes straight through to weights behind closed gates, too, so that they
        #: go on learning.
        self.closed_weights_learn = False
        #: Whether it stays as it is, whatever method prunes the other gates of the model.
        self.fixed = False
        #: Whether `trainable` stays as it is when the layer around is frozen or thawed.
        self.independent = False
        self.seed_generator = keras.random.SeedGenerator(seed)

    def build(self, weight_shape, rows: int | None = None) -> None:
        """Makes the logits for a weight of `weight_shape`; `rows` is how many rows it has when seen as a
        matrix.

        Without `rows` the last axis holds the outputs and all others are summed over.
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
        """Has it stay as it is: rounded, not trained, left alone by pruning methods."""
        self.fixed, self.samples, self.trainable = True, False, False
        self.independent = True

    @property
    def trainable(self) -> bool:
        """Whether it learns; set with the layer around it, unless it is `independent`."""
        return keras.layers.Layer.trainable.fget(self)

    @trainable.setter
    def trainable(self, value: bool) -> None:
        if not self.independent:
            keras.layers.Layer.trainable.fset(self, value)

    @property
    def size(self) -> int:
        """How many weights all its gates switch."""
        return self.rows * self.columns

    @property
    def block_size(self) -> int:
        """How many weights one gate switches."""
        return self.block[0] * self.block[1]

    def __call__(self, weight, **kwargs):
        # A variable is read here, where the layer around it says in which precision, and not as an input
        # of this layer.
        return super().__call__(tf.convert_to_tensor(weight), **kwargs)

    def call(self, weight, training=None):
        return self._product(weight, tf.cast(self.mask(training), weight.dtype))

    def _product(self, weight: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """`W' = weight * expand(mask)`; its gradients are `block_sum(dL/dW' * W)` and `dL/dW' [* mask]`."""
        through = self.closed_weights_learn

        @tf.custom_gradient
        def product(weight, mask):
            def backward(gradient):
                of_mask = self.block_sum(gradient * weight)
                return (gradient if through else gradient * self.expand(mask)), of_mask

            return weight * self.expand(mask), backward

        return product(weight, mask)

    def read(self, weight: keras.Variable) -> tf.Tensor:
        """The gated weight of the layer that owns this gate: one draw for a forward pass.

        Every read within a pass, or inside `sample_gates_once`, returns the same tensor. Custom layers can
        use it as well: `matmul(inputs, self.gate.read(self.kernel))`.

        Args:
            weight: always the same one.
        """
        held = draws.find_in_scopes(id(self))
        if held is None:
            training = keras_internals.training_of_call()
            key = id(self), training if isinstance(training, bool | None) else id(training)
            of_pass = draws.of_pass()
            held = of_pass.find(*key) if of_pass else None
            if held is None:
                held = self.call(tf.convert_to_tensor(weight), training)
                if of_pass:
                    of_pass.keep(held, *key)
        return tf.cast(held, weight.dtype)

    def mask(self, training: bool | None = False) -> tf.Tensor:
        """The gates' states: float32 zeros and ones, a value for a block; in training a new draw a call."""
        probability = tf.sigmoid(tf.convert_to_tensor(self.logits))
        if not (self.samples and self.trainable) or training is None or training is False:
            return straight_through_round(probability)
        seed = self.seed_generator.next()
        if training is True:
            return straight_through_bernoulli(probability, seed)
        return tf.cond(
            tf.cast(training, tf.bool),
            lambda: straight_through_bernoulli(probability, seed),
            lambda: straight_through_round(probability),
        )

    def expand(self, mask: tf.Tensor) -> tf.Tensor:
        """[rows / block rows, columns / block columns], one value for a block -> the shape of the weight."""
        rows, columns = self.block
        if rows == columns == 1:
            return tf.reshape(mask, self.weight_shape)
        tiled = tf.broadcast_to(
            mask[:, None, :, None], (self.rows // rows, rows, self.columns // columns, columns)
        )
        return tf.reshape(tiled, self.weight_shape)

    def block_sum(self, values: tf.Tensor) -> tf.Tensor:
        """Sums values of the weight's shape over each block -> the shape of the logits."""
        rows, columns = self.block
        tiled = tf.reshape(values, (self.rows // rows, rows, self.columns // columns, columns))
        return tf.reduce_sum(tiled, (1, 3))

    def open_count(self) -> tf.Tensor:
        """How many weights the gates let through when rounded: float32 scalar."""
        # Counted as integers: a float32 sum of ones stops at 2**24.
        opened = tf.reduce_sum(tf.cast(tf.convert_to_tensor(self.logits) > 0.0, tf.int32))
        return tf.cast(opened, tf.float32) * self.block_size

    def save_own_variables(self, store) -> None:
        super().save_own_variables(store)
        # Keras leaves out the state of random numbers; with it a training that goes on draws as if it had
        # never stopped.
        store["seed_state"] = self.seed_generator.state.numpy()

    def load_own_variables(self, store) -> None:
        self.logits.assign(store["0"])
        self.seed_generator.state.assign(store["seed_state"])

    def compute_output_shape(self, weight_shape):
        return weight_shape

    def get_config(self) -> dict:
        return {
            **super().get_config(),
            "block_shape": list(self.block_shape),
            "initial_logit": self.initial_logit,
            "seed": self.seed,
        }


def gated_layers(model: keras.Layer) -> list[keras.Layer]:
    """The layers of `model`, itself included, that own gates: each once, in Keras's order."""
    seen: dict[int, keras.Layer] = {}
    for layer in keras_internals.nested_layers(model):
        if getattr(layer, "gate_of", None):
            seen.setdefault(id(layer), layer)
    return list(seen.values())


def gates(model: keras.Layer) -> list[Gate]:
    """Every gate in `model`."""
    return [gate for layer in gated_layers(model) for gate in layer.gate_of.values()]


@contextlib.contextmanager
def sample_gates_once(model: keras.Layer, training: bool | None = None) -> Iterator[None]:
    """Draws every gate of `model` once; inside the block all its layers use that draw, in loops too.

    Inside another `sample_gates_once` that has drawn a gate already, that draw stays.

    Args:
        model: any layer or model; one without gates costs nothing.
        training: as `call`'s; None is what the Keras call around runs with.

    Example:
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
                    weight = _in_precision_of(layer, layer.stored_weight(name))
                    held.keep(gate.call(weight, training), id(gate))
        yield


def _in_precision_of(layer: keras.Layer, weight) -> tf.Tensor:
    """A weight as `layer` itself would read it: the model around may compute in another precision."""
    raw = keras_internals.uncast_value(weight) if isinstance(weight, keras.Variable) else weight
    return tf.cast(raw, layer.compute_dtype)
