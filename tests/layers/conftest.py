"""Pairs of models: a gated model, and a stock model with the masked weights."""

from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.gates import Gate, gated_layers, gates, straight_through_bernoulli
from tfsparsecap.layers.gated import GATED_FORMS, gate_in_place


def _stock_layers(model):
    return [layer for layer in model._flatten_layers() if not isinstance(layer, Gate)]


def _gate_all(model, block_shape=(1, 1), seed=0):
    """Gates all supported layers in place; about two thirds of the gates are open."""
    for layer in _stock_layers(model):
        if type(layer) in GATED_FORMS:
            gate_in_place(layer, block_shape)
    random = np.random.default_rng(seed)
    for gate in gates(model):
        gate.logits.assign(random.normal(0.5, 1.0, gate.logits.shape))
    return model


def _masks(model, training):
    """Masks of the next forward pass by gate: rounded by NumPy, or in training sampled with the same seed."""
    masks = {}
    for gate in gates(model):
        logits = np.asarray(gate.logits)
        if training:
            probability = tf.sigmoid(tf.constant(logits))
            mask = np.asarray(straight_through_bernoulli(probability, gate.seed_generator.state.value))
        else:
            mask = (logits > 0).astype("float32")
        masks[id(gate)] = mask
    return masks


def _expanded(gate, mask):
    return np.kron(mask, np.ones(gate.block)).reshape(gate.weight_shape)


def _mask_into(stock, gated, masks):
    """Assigns the masked weights of a gated model to a stock model of the same structure."""
    for source, target in zip(_stock_layers(gated), _stock_layers(stock), strict=True):
        for mine, theirs in zip(source._trainable_variables, target._trainable_variables, strict=True):
            theirs.assign(mine)
        for name, gate in getattr(source, "gate_of", {}).items():
            raw = np.asarray(source.stored_weight(name))
            getattr(target, name).assign(raw * _expanded(gate, masks[id(gate)]))


@pytest.fixture
def twins():
    """Functions that make and compare twins."""

    def outputs(make, x, *, training, block_shape=(1, 1), compiled=False):
        """(output of the gated model, output of the stock model with masked weights)."""
        keras.utils.set_random_seed(1)
        gated = make()
        gated(x)
        _gate_all(gated, block_shape)
        keras.utils.set_random_seed(1)
        stock = make()
        stock(x)
        masks = _masks(gated, training)
        _mask_into(stock, gated, masks)
        call = tf.function if compiled else lambda function: function
        run = [call(lambda x, model=model: model(x, training=training)) for model in (gated, stock)]
        return run[0](x), run[1](x)

    def gradients(make, x, *, block_shape=(1, 1)):
        """For each gate in training: dL/dG by the tape, and by NumPy from the stock model's dL/dW'."""
        keras.utils.set_random_seed(1)
        gated = make()
        gated(x)
        _gate_all(gated, block_shape)
        keras.utils.set_random_seed(1)
        stock = make()
        stock(x)
        _mask_into(stock, gated, _masks(gated, True))
        with tf.GradientTape() as tape:
            output = gated(x, training=True)
            loss = tf.reduce_sum(output * tf.cos(tf.cast(tf.range(output.shape[-1]), output.dtype)))
        by_tape = tape.gradient(loss, [gate.logits.value for gate in gates(gated)])
        with tf.GradientTape() as tape:
            output = stock(x, training=True)
            loss = tf.reduce_sum(output * tf.cos(tf.cast(tf.range(output.shape[-1]), output.dtype)))
        twin_of = dict(zip(map(id, _stock_layers(gated)), _stock_layers(stock), strict=True))
        targets = [
            (layer, name, gate, getattr(twin_of[id(layer)], name).value)
            for layer in gated_layers(gated)
            for name, gate in layer.gate_of.items()
        ]
        pairs = []
        for (layer, name, gate, _), mine, theirs in zip(
            targets, by_tape, tape.gradient(loss, [target[-1] for target in targets]), strict=True
        ):
            of_weight = np.asarray(tf.convert_to_tensor(theirs)) * np.asarray(layer.stored_weight(name))
            (rows, columns), (tall, wide) = gate.logits.shape, gate.block
            of_mask = of_weight.reshape(rows, tall, columns, wide).sum((1, 3))
            probability = 1.0 / (1.0 + np.exp(-np.asarray(gate.logits)))
            pairs.append((np.asarray(mine), of_mask * probability * (1.0 - probability)))
        return pairs

    return SimpleNamespace(outputs=outputs, gradients=gradients, gate_all=_gate_all)
