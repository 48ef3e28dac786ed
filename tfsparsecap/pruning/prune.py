"""prune and strip_pruning: gates onto any Keras model, and off again."""

import contextlib
import logging
import warnings
from collections.abc import Iterable

import keras
import tensorflow as tf

from tfsparsecap import keras_internals
from tfsparsecap.errors import InputError
from tfsparsecap.gates import INITIAL_LOGIT, Gate, gated_layers, gates
from tfsparsecap.layers.gated import GATED_FORMS, GatedLayer, gate_in_place, ungate_in_place
from tfsparsecap.pruning import registry
from tfsparsecap.pruning.method import PruningMethod
from tfsparsecap.pruning.pruned_model import PrunedModel, attach, turn_pruned, turn_stock

_LOG = logging.getLogger(__name__)


def prune(
    model: keras.Model,
    method: PruningMethod | str,
    *,
    skip: str | Iterable[str] = (),
    prune_frozen: bool = False,
    **options,
) -> keras.Model:
    """Puts gates on the weights of `model` and has `method` close them while the model trains.

    The model itself is converted, as Keras's own `quantize` and `enable_lora` convert it: functional,
    sequential and subclassed models alike, nested layers too. Kernels and embedding tables of the stock Keras
    layers get gates; biases, normalisation and, unless `prune_frozen`, layers that are not trainable are left
    alone. `compile` and `fit` it as before (or train it with a loop of your own and the optimizer that
    `model.pruning.wrap(optimizer)` gives), then call `strip_pruning`. A model that is compiled already stays
    so, with a fresh optimizer of the same settings.

    Args:
        model: a built Keras 3 model.
        method: a pruning method, or its name with `options` for its arguments.
        skip: names (or ends of paths, such as `"decoder/output"`) of layers to leave alone, with all that is
            in them.
        prune_frozen: put gates on layers that are not trainable, too. Their weights stay as they are, and
            their batch normalisation in inference mode; their gates learn, and go on learning when the layers
            are thawed. A published network is pruned so without being trained.

    Returns:
        `model`. Its new attribute `model.pruning` is the method; `model.pruning.left_alone` says which layers
        that have weights got no gates, and why (path -> reason; also logged at level INFO).

    Raises:
        InputError: the model is not built, is pruned already, or has nothing to prune; or the method cannot
            reach its target. The model is then as it was.

    Example:
        >>> layers = [keras.Input((8,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(2)]
        >>> model = prune(keras.Sequential(layers), "supermask", sparsity=0.9, total_steps=100)
        >>> [type(layer).__name__ for layer in model.layers]
        ['GatedDense', 'GatedDense']
    """
    method = registry.get(method, **options)
    if not isinstance(model, keras.Model):
        raise InputError(
            f"prune takes a Keras 3 model, not a {type(model).__module__}.{type(model).__name__}: models of "
            "tf_keras or torch must be made with keras first"
        )
    if not model.built:
        raise InputError(
            f"{model.name} is not built, so it has no weights to prune: call it on a batch, or "
            "model.build(input_shape), first"
        )
    for part in keras_internals.nested_layers(model):
        if isinstance(part, PrunedModel):
            raise InputError(
                f"{part.name} is pruned already: call strip_pruning first to prune it another way"
            )
    chosen, left_alone = _sort_layers(model, skip, prune_frozen)
    there = gates(model)
    if not chosen and all(gate.fixed for gate in there):
        why = "the gates that it has are fixed" if there else _sentence(left_alone)
        raise InputError(f"{model.name} has no layer that can be pruned: {why}")
    with contextlib.ExitStack() as undo, _strategy_of(model):
        for layer in chosen:
            gate_in_place(layer, method.block_shape)
            undo.callback(ungate_in_place, layer, masked=False)
        frozen = [layer for layer in gated_layers(model) if prune_frozen and not layer.trainable]
        attach(method, model, frozen)
        undo.pop_all()
        method.left_alone = left_alone
        turn_pruned(model, method)
    _LOG.info(
        "%s: %d weights in %d layers have gates; left alone: %s",
        model.name,
        method.gated_size,
        len(gated_layers(model)),
        _sentence(left_alone) if left_alone else "none",
    )
    return model


def fix_zeros(model: keras.Model, *, skip: str | Iterable[str] = (), block_shape=(1, 1)) -> keras.Model:
    """Puts gates on that stay as they are: closed where all weights of a block are zero.

    For a model of which one part is pruned already and another one is to be: `prune` leaves these gates
    alone. Where the whole model keeps its zeros, prune it with `FrozenMask`.

    Args:
        model: a built Keras 3 model.
        skip: names of layers to leave alone, as `prune` takes them.
        block_shape: (inputs, outputs) of a block.

    Returns:
        `model`.

    Raises:
        InputError: `skip` names no layer.

    Example:
        >>> layers = [keras.Input((8,)), keras.layers.Dense(64, name="old"), keras.layers.Dense(2)]
        >>> model = fix_zeros(keras.Sequential(layers), skip="old")
        >>> [type(layer).__name__ for layer in model.layers]
        ['Dense', 'GatedDense']
    """
    chosen, _ = _sort_layers(model, skip)
    with _strategy_of(model):
        for layer in chosen:
            gate_in_place(layer, block_shape)
            for name, gate in layer.gate_of.items():
                size = gate.block_sum(tf.abs(tf.cast(layer.stored_weight(name), tf.float32)))
                gate.logits.assign(tf.where(size > 0.0, INITIAL_LOGIT, -INITIAL_LOGIT))
                gate.fix()
    return model


def strip_pruning(model: keras.Model) -> keras.Model:
    """Takes the gates off: masks the weights for good and makes the model the stock Keras model it was.

    `W_f = W * round(sigmoid(G))` (SMP paper, section 4.3). The optimizer is taken off too: compile the model
    again to evaluate or fine-tune it.

    Args:
        model: a model that `prune` returned, or any model with this package's gated layers in it.

    Returns:
        `model`, with stock layers only.

    Raises:
        InputError: a gated layer has no stock form, or has LoRA weights.

    Example:
        >>> model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(2)])
        >>> model = strip_pruning(prune(model, "supermask", sparsity=0.5, total_steps=10))
        >>> type(model.layers[0]) is keras.layers.Dense
        True
    """
    _finalize(model)
    parts = keras_internals.nested_layers(model)
    for layer in gated_layers(model):
        ungate_in_place(layer)
    for part in parts:
        if isinstance(part, PrunedModel):
            turn_stock(part)
        elif part is model and isinstance(model, keras.Model):
            turn_stock(model)
    return model


def _finalize(model: keras.Model) -> None:
    """Has the method settle, and warns where the training stopped before the pruning was done."""
    method = getattr(model, "pruning", None)
    if not isinstance(method, PruningMethod) or not method.gates:
        return
    sentence = method.finalize()
    if sentence is not None:
        warnings.warn(sentence, stacklevel=3)


def _sort_layers(
    model: keras.Model, skip: str | Iterable[str], prune_frozen: bool = False
) -> tuple[list[keras.Layer], dict[str, str]]:
    """The layers to put gates on, and path -> reason for those with weights that are left alone."""
    skipped = _named(model, (skip,) if isinstance(skip, str) else tuple(skip))
    chosen, left_alone = {}, {}
    for layer in keras_internals.nested_layers(model):
        if isinstance(layer, (Gate, GatedLayer)) or not (
            keras_internals.own_weights(layer) or type(layer) in GATED_FORMS
        ):
            continue
        reason = "asked for" if id(layer) in skipped else _why_not(layer, prune_frozen)
        if reason is None:
            chosen[id(layer)] = layer
        else:
            left_alone[layer.path or layer.name] = reason
    return list(chosen.values()), left_alone


def _why_not(layer: keras.Layer, prune_frozen: bool) -> str | None:
    if type(layer) not in GATED_FORMS:
        return f"{type(layer).__name__} has no gated form"
    if not layer.built:
        return "it is not built: the model was never called through it"
    if not (layer.trainable or prune_frozen):
        return "it is not trainable"
    if keras_internals.is_rematerialized(layer):
        return "it is rematerialized (keras.RematScope), which the gradients of gates do not survive"
    if layer.quantization_mode is not None:
        return "it is quantized"
    if getattr(layer, "lora_enabled", False):
        return "it has LoRA weights"
    return None


def _named(model: keras.Model, names: tuple[str, ...]) -> set[int]:
    """Ids of the layers that go by one of the names, and of all layers in them."""
    found, unknown = set(), list(names)
    for layer in keras_internals.nested_layers(model, include_self=False):
        path = layer.path or layer.name
        for name in names:
            if layer.name == name or path == name or path.endswith(f"/{name}"):
                found.update(id(part) for part in keras_internals.nested_layers(layer))
                unknown = [other for other in unknown if other != name]
    if unknown:
        raise InputError(
            f"skip names {unknown}, which {model.name} has no layer for: use names as in model.summary()"
        )
    return found


def _strategy_of(model: keras.Model):
    """The scope that the model's variables were made in: gates must live on the same devices."""
    if tf.distribute.has_strategy():
        return contextlib.nullcontext()
    return model.distribute_strategy.scope()


def _sentence(left_alone: dict[str, str]) -> str:
    return "; ".join(f"{path}: {reason}" for path, reason in left_alone.items()) or "it has no weights"
