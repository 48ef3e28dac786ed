"""prune and strip_pruning: add gates to any Keras model, and remove them."""

import contextlib
import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import keras
import tensorflow as tf

from tfsparsecap.core import keras_internals
from tfsparsecap.core.chosen_layers import entries_of, is_meant
from tfsparsecap.core.model_call import check_model
from tfsparsecap.errors import InputError, warn_caller
from tfsparsecap.gates import INITIAL_LOGIT, Gate, gated_layers, gates
from tfsparsecap.layers.gated import GATED_FORMS, GatedLayer, check_stock_form, gate_in_place, ungate_in_place
from tfsparsecap.pruning import registry
from tfsparsecap.pruning.feedback import warn_of_emptied
from tfsparsecap.pruning.method import PruningMethod
from tfsparsecap.pruning.pruned_model import (
    PrunedModel,
    attach,
    forget_compiled_functions,
    make_pruned,
    make_stock,
    new_optimizer,
)

#: `prune` warns of matrices without gates from this number of weights and this share of the model's on.
WARNED_SIZE, WARNED_SHARE = 1024, 0.01
Skip: TypeAlias = str | keras.Layer | Iterable[str | keras.Layer]
_SKIPPED, _FROZEN = "skipped", "it is not trainable"


def prune(
    model: keras.Model,
    method: PruningMethod | str,
    *,
    skip: Skip = (),
    prune_frozen: bool = False,
    **options: Any,
) -> keras.Model:
    """Adds gates to the weights of `model`, which `method` closes during training.

    The model is converted in place, like with Keras's `quantize` and `enable_lora`: functional, sequential
    and subclassed models, and nested layers. Kernels and embedding tables of stock Keras layers get gates;
    biases, normalisation and, unless `prune_frozen`, layers that are not trainable do not. `compile` and
    `fit` the model as before (or train it in a custom loop with the optimizer that
    `model.pruning.wrap(optimizer)` returns), then call `strip_pruning`. A compiled model stays compiled, with
    a new optimizer of the same settings. Call `tfsparsecap.check_exportable`
    before, to know whether the model can be exported.

    A layer that is frozen later (`layer.trainable = False`) keeps its gates as they are, and `sparsity` is
    then a share of the weights behind the other gates, until the layer is trainable again. As always in
    Keras, compile the model again after you freeze layers.

    `total_steps` of the methods counts calls of the optimizer: with `gradient_accumulation_steps`, batches.

    `keras.models.clone_model` copies neither the method nor all gates: call `prune` on the copy, too.

    Prune the outermost model that is trained: if a pruned model is only a layer of it, nothing is pruned. To
    prune a part only, name the other layers in `skip`.

    Args:
        model: a built Keras 3 model.
        method: a pruning method, or its name with `options` for its arguments.
        skip: layers to skip, including the layers inside them, or their names, ends of their paths, such as
            `"decoder/output"`, or patterns of these, such as `"stem_*"`.
        prune_frozen: also add gates to layers that are not trainable. Their weights do not change, and their
            batch normalisation stays in inference mode, but their gates learn, even if the layers become
            trainable later. This prunes a pretrained network without training it.

    Returns:
        `model`. Its new attribute `model.pruning` is the method; `model.pruning.ungated_layers` lists the
        layers with weights but without gates (path -> reason), and `model.pruning.describe()` all. A warning
        names large matrices that stay dense because their layers cannot be pruned.

    Raises:
        InputError: the model is not built, is already pruned, or has nothing to prune; `skip` names no layer,
            or one that has gates; the method cannot reach its target; or the model is compiled with an
            optimizer that has no configuration. The model is then unchanged.

    Examples:
        >>> layers = [keras.Input((8,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(2)]
        >>> model = prune(keras.Sequential(layers), "supermask", sparsity=0.9, total_steps=100)
        >>> [type(layer).__name__ for layer in model.layers]
        ['GatedDense', 'GatedDense']
    """
    method = registry.get(method, **options)
    check_model(model, "prune")
    for part in keras_internals.nested_layers(model):
        if isinstance(part, PrunedModel):
            raise InputError(
                f"{part.name} is already pruned: call strip_pruning first to prune it with another method"
            )
    chosen, ungated_layers = _sort_layers(model, skip, prune_frozen)
    existing = gates(model)
    if not chosen and all(gate.fixed for gate in existing):
        why = "all its gates are fixed" if existing else _listed(ungated_layers)
        raise InputError(f"{model.name} has no layer that can be pruned: {why}")
    with contextlib.ExitStack() as undo, _strategy_of(model):
        optimizer = new_optimizer(model)
        for layer in chosen:
            gate_in_place(layer, method.block_shape)
            undo.callback(ungate_in_place, layer, masked=False)
        frozen = [layer for layer in gated_layers(model) if prune_frozen and not layer.trainable]
        attach(method, model, frozen)
        undo.pop_all()
        method.ungated_layers = ungated_layers
        make_pruned(model, method, optimizer)
    others = {
        layer.path or layer.name: layer.block_shape
        for layer in gated_layers(model)
        if layer.block_shape != method.block_shape != (1, 1)
        and any(not gate.fixed for gate in layer.gate_of.values())
    }
    if others:
        warn_caller(
            f"block_shape={method.block_shape} does not change gates that exist already: "
            + ", ".join(f"{path} has blocks of {shape}" for path, shape in others.items())
            + "; call strip_pruning on the model before prune to replace them"
        )
    dense = _large_dense_weights(model, ungated_layers)
    if dense:
        warn_caller(
            f"{model.name} has large weights that stay dense: {'; '.join(dense)}; use stock Keras layers to"
            " prune them, or name the layers in skip"
        )
    warn_of_emptied(model.name, method)
    return model


def fix_zeros(model: keras.Model, *, skip: Skip = (), block_shape: Sequence[int] = (1, 1)) -> keras.Model:
    """Adds gates that never change: closed if all weights of a block are zero.

    For a model with one part that is already pruned and another part to prune: `prune` does not change
    these gates. To keep the zeros of a whole model, prune it with `FrozenMask`.

    Args:
        model: a built Keras 3 model.
        skip: layers to skip, as in `prune`.
        block_shape: (inputs, outputs) of a block.

    Returns:
        `model`.

    Raises:
        InputError: `skip` names no layer, or one that has gates.

    Examples:
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
    forget_compiled_functions(model)
    return model


def strip_pruning(model: keras.Model) -> keras.Model:
    """Removes the gates: masks the weights permanently and restores a stock Keras model.

    `W_f = W * round(sigmoid(G))` (SMP paper, equation 10). The optimizer is also removed: compile the model
    again to evaluate or fine-tune it. LoRA weights of gated layers are merged into them.

    Args:
        model: a model that `prune` returned, or any model that contains gated layers of this package.

    Returns:
        `model`, with stock layers only.

    Raises:
        InputError: the model is a part of a pruned model, or a gated layer has no stock form. The model is
            then unchanged.

    Examples:
        >>> model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(2)])
        >>> model = strip_pruning(prune(model, "magnitude", sparsity=0.5))
        >>> type(model.layers[0]) is keras.layers.Dense
        True
    """
    parts = keras_internals.nested_layers(model)
    own = gates(model)
    owners = {id(gate.owner): gate.owner for gate in own if gate.owner is not None}
    carried = {id(part.pruning): part.pruning for part in parts if isinstance(part, PrunedModel)}
    inside = set(map(id, own))
    if any(id(gate) not in inside for key in owners.keys() - carried for gate in owners[key].gates):
        raise InputError(
            f"{model.name} is a part of a pruned model: call strip_pruning on the whole model, which also"
            " restores this part"
        )
    for layer in gated_layers(model):
        check_stock_form(layer)
    for part in parts:
        method = getattr(part, "pruning", None)
        if isinstance(method, PruningMethod) and method.gates:
            warning = method.finalize()
            warn_of_emptied(part.name, method)
            if warning is not None:
                warn_caller(warning if part is model else f"{part.name}: {warning}")
    unused = [gate for gate in own if gate.owner is None and not gate.fixed]
    detached = any(isinstance(part, PrunedModel) for part in parts)  # a method was detached on purpose
    if unused and not detached and all(float(gate.open_count()) == gate.size for gate in unused):
        warn_caller(
            f"{model.name} has gates in {len(unused)} weights that no pruning method controls and that are"
            " all open, so these weights stay dense: call prune on the model before its training"
        )
    for layer in gated_layers(model):
        ungate_in_place(layer)
    for part_method in carried.values():
        for gate in part_method.gates:
            if gate.owner is part_method:  # of a layer that was removed from the model, as by `pop`
                gate.owner = None
    for part in parts:
        if isinstance(part, PrunedModel) or (part is model and isinstance(part, keras.Model)):
            make_stock(part)
    return model


def _sort_layers(
    model: keras.Model, skip: Skip, prune_frozen: bool = False
) -> tuple[list[keras.Layer], dict[str, str]]:
    """Returns the layers to add gates to, and path -> reason for the other layers with weights."""
    skipped, users = _skipped(model, skip), _users(model)
    chosen, ungated_layers = {}, {}
    for layer in keras_internals.nested_layers(model):
        if id(layer) in skipped and any(not gate.fixed for gate in getattr(layer, "gate_of", {}).values()):
            raise InputError(
                f"skip contains {layer.path or layer.name}, which has gates: call strip_pruning on the model"
                " before prune, or create it as a stock layer"
            )
        if isinstance(layer, (Gate, GatedLayer)) or not (
            keras_internals.own_weights(layer) or type(layer) in GATED_FORMS
        ):
            continue
        reason = _SKIPPED if id(layer) in skipped else _obstacle(layer, prune_frozen)
        for weight in keras_internals.own_weights(layer) if reason is None else ():
            other = next((user for user in users[id(weight)] if user is not layer), None)
            if other is not None:  # it would read the weight without the gates
                reason = f"{other.name} uses its {weight.name}, too"
        if reason is None:
            chosen[id(layer)] = layer
        else:
            ungated_layers[layer.path or layer.name] = reason
    return list(chosen.values()), ungated_layers


def _obstacle(layer: keras.Layer, prune_frozen: bool) -> str | None:
    """Why a layer cannot get gates; None if it can."""
    if type(layer) not in GATED_FORMS:
        return f"{type(layer).__name__} has no gated form"
    if not layer.built:
        return "it is not built: no call of the model has used it"
    if not (layer.trainable or prune_frozen):
        return _FROZEN
    if keras_internals.is_rematerialized(layer):
        return "it is rematerialized (keras.RematScope), which gates do not support"
    if layer.quantization_mode is not None:
        return "it is quantized"
    if getattr(layer, "lora_enabled", False):
        return "it has LoRA weights"
    return None


def _large_dense_weights(model: keras.Model, ungated_layers: dict[str, str]) -> list[str]:
    """Names large matrices without gates, except in layers that are skipped or frozen."""
    smallest = max(WARNED_SIZE, WARNED_SHARE * model.count_params())
    listed = []
    for layer in keras_internals.nested_layers(model):
        reason = ungated_layers.get(layer.path or layer.name, "it has no gates")
        gated = {id(layer.stored_weight(name)) for name in getattr(layer, "gate_of", ())}
        if reason in (_SKIPPED, _FROZEN) or isinstance(layer, Gate):
            continue
        for weight in keras_internals.own_weights(layer):
            size = math.prod(weight.shape)
            is_matrix = sum(length > 1 for length in weight.shape) > 1
            learns = weight.trainable or type(layer) in GATED_FORMS  # those with LoRA weights do not
            if is_matrix and size >= smallest and learns and id(weight) not in gated:
                listed.append(f"{weight.path} ({size} weights; {reason})")
    return list(dict.fromkeys(listed))


def _skipped(model: keras.Model, skip: Skip) -> set[int]:
    """Returns the ids of the layers that `skip` names, and of all layers inside them."""
    skipped: set[int] = set()
    layers = keras_internals.nested_layers(model, include_self=False)
    for entry in entries_of(skip):
        meant = [layer for layer in layers if is_meant(layer, entry)]
        if not meant:
            name = entry if isinstance(entry, str) else entry.name
            raise InputError(
                f"skip contains {name!r}, but {model.name} has no such layer: use names as in model.summary()"
            )
        skipped.update(id(part) for layer in meant for part in keras_internals.nested_layers(layer))
    return skipped


def _users(model: keras.Model) -> dict[int, list[Any]]:
    """Returns id of a variable -> the layers that have it, and the operations that take it as an argument."""
    users: dict[int, list[Any]] = {}
    for layer in keras_internals.nested_layers(model):
        # This one changes the raw weights of the layer inside.
        is_user = not isinstance(layer, keras.layers.SpectralNormalization)
        reads = [(layer, keras_internals.own_weights(layer))] if is_user else []
        functional = keras_internals.functional_of(layer)
        for node in keras_internals.functional_nodes(functional) if functional is not None else ():
            reads.append((node.operation, keras.tree.flatten((node.arguments.args, node.arguments.kwargs))))
        for user, values in reads:
            for value in values:
                users.setdefault(id(value), []).append(user)
    return users


def _strategy_of(model: keras.Model) -> contextlib.AbstractContextManager[Any]:
    """Returns the scope in which the model was created: gates must be on the same devices."""
    if tf.distribute.has_strategy():
        return contextlib.nullcontext()
    scope: contextlib.AbstractContextManager[Any] = model.distribute_strategy.scope()
    return scope


def _listed(ungated_layers: dict[str, str]) -> str:
    return "; ".join(f"{path}: {reason}" for path, reason in ungated_layers.items()) or "it has no weights"
