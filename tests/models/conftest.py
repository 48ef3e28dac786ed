"""What every captioner must be able to do."""

import keras
import numpy as np
import tensorflow as tf


def assert_learns(captioner, inputs, *, jit, length, steps, share):
    """With Keras's own fit the loss on one batch comes down to less than a share of what it was."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    captioner.compile(keras.optimizers.Adam(0.03), loss, jit_compile=jit)
    inputs = {**inputs, "tokens": inputs["tokens"][:, :length]}
    targets = np.roll(inputs["tokens"], -1, axis=1)
    before = loss(targets, captioner(inputs))
    data = tf.data.Dataset.from_tensors((inputs, targets)).repeat(steps)
    captioner.fit(data, epochs=1, verbose=0, shuffle=False)
    assert loss(targets, captioner(inputs)) < share * before
