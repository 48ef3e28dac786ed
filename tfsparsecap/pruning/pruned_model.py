"""The class that `sc.prune` gives a model: its own one with the mixin `PrunedModel`, whose `fit` prunes."""

import functools
import gc
import inspect
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from tfsparsecap.core import keras_internals
from tfsparsecap.errors import InputError, warn_caller
from tfsparsecap.gates import Gate, gated_layers, gates, sample_gates_once
from tfsparsecap.layers.gated import GATED_FORMS, gate_in_place
from tfsparsecap.pruning.feedback import with_callbacks
from tfsparsecap.pruning.method import PruningMethod

#: Prefix of the method's variables in files.
_STATE = "pruning_"
#: Attributes of a model with functions that Keras, or KerasHub's `generate`, traced.
_COMPILED = ("train_function", "test_function", "predict_function", "generate_function")

if TYPE_CHECKING:
    from keras import Model as _MixedModel
else:
    _MixedModel = object


class PrunedModel(_MixedModel):
    """Mixin: `call` samples each gate once, `compile` wraps the optimizer, `fit` logs the sparsity."""

    stock_class: type[keras.Model]
    pruning: PruningMethod
    optimizer: Any

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        # Keras's `clone_model` creates a functional model from the class of another one. The clone has no
        # pruning method.
        return cls.stock_class(*args, **kwargs)

    def call(self, *args: Any, **kwargs: Any) -> tf.Tensor:
        if not getattr(self, "inputs", None):  # a subclassed model
            _remember_call(self, args, kwargs)
        # All gates use the model's training flag, even if its layers are called with another one.
        with sample_gates_once(self, kwargs.get("training")):
            return super().call(*args, **kwargs)

    @property
    def trainable_variables(self) -> list[keras.Variable]:
        # Keras returns nothing for a frozen model, but its gates may still be trained.
        return super().trainable_variables or self._trained_logits()

    @property
    def trainable_weights(self) -> list[keras.Variable]:
        return super().trainable_weights or self._trained_logits()

    @property
    def non_trainable_variables(self) -> list[keras.Variable]:
        learning = {id(variable) for variable in self.trainable_variables}
        return [variable for variable in self.variables if id(variable) not in learning]

    @property
    def non_trainable_weights(self) -> list[keras.Variable]:
        learning = {id(variable) for variable in self.trainable_weights}
        return [variable for variable in self.weights if id(variable) not in learning]

    def _trained_logits(self) -> list[keras.Variable]:
        return [gate.logits for gate in gates(self) if gate.trainable]

    def compile(self, *args: Any, **kwargs: Any) -> None:
        super().compile(*args, **kwargs)
        if self.optimizer is not None:
            self.optimizer = self.pruning.wrap(self.optimizer)

    def load_weights(self, *args: Any, **kwargs: Any) -> None:
        # Keras skips the state of optimizers that are not built, and with it the method's state.
        self._build_optimizer()
        super().load_weights(*args, **kwargs)

    # The method's state is saved with the weights: an optimizer may be left out, or compiled later. A model
    # without gates would misread the weights, and Keras refuses them because of these entries.
    def save_own_variables(self, store: Any) -> None:
        super().save_own_variables(store)
        for number, variable in enumerate(self.pruning.variables):
            store[f"{_STATE}{number}"] = np.array(variable)

    def load_own_variables(self, store: Any) -> None:
        states = {name: store[name] for name in [*store.keys()] if name.startswith(_STATE)}
        super().load_own_variables({name: store[name] for name in [*store.keys()] if name not in states})
        variables = {f"{_STATE}{number}": variable for number, variable in enumerate(self.pruning.variables)}
        known = {name: tuple(value.shape) for name, value in states.items()}
        if states and known != {name: tuple(variable.shape) for name, variable in variables.items()}:
            warn_caller(
                f"the state of {type(self.pruning).__name__} was not loaded, because the file is of another"
                " method or other gates: prune the model as it was when the file was written"
            )
            return
        for name, value in states.items():
            variables[name].assign(value)

    def _build_optimizer(self) -> None:
        optimizer = getattr(self, "optimizer", None)  # Keras sets it in `compile`
        if self.built and optimizer is not None and not optimizer.built:
            with self.distribute_strategy.scope():
                optimizer.build(self.trainable_variables)

    def compile_from_config(self, config: dict[str, Any]) -> None:
        if type(self).stock_class.compile_from_config is not keras.Model.compile_from_config:
            super().compile_from_config(config)
            self._build_optimizer()
            return
        # Keras does not support this for classes that override `compile`; the config has the arguments of
        # Keras's `compile`.
        arguments = keras.saving.deserialize_keras_object(config)
        try:
            inspect.signature(type(self).stock_class.compile).bind(self, **arguments)
        except TypeError:
            super().compile_from_config(config)  # Keras warns and does not compile the model
            return
        self.compile(**arguments)
        self._build_optimizer()

    def fit(self, *args: Any, **kwargs: Any) -> keras.callbacks.History:
        signature = inspect.signature(super().fit)
        kinds = {parameter.kind: parameter.name for parameter in signature.parameters.values()}
        if inspect.Parameter.VAR_POSITIONAL in kinds:  # a class that passes *args and **kwargs to Keras
            signature = inspect.signature(functools.partial(keras.Model.fit, self))
        bound = signature.bind(*args, **kwargs)
        # Some classes have parameters of their own, in another order, and pass only **kwargs to Keras.
        others = bound.arguments.get(kinds.get(inspect.Parameter.VAR_KEYWORD, ""), {})
        callbacks = with_callbacks(self, {**bound.arguments, **others})
        if "callbacks" in signature.parameters:
            bound.arguments["callbacks"] = callbacks
            return super().fit(*bound.args, **bound.kwargs)
        return super().fit(*bound.args, **{**bound.kwargs, "callbacks": callbacks})

    @property
    def quantize(self) -> Any:
        # Each Keras model has the wrapped `quantize` of its class as an attribute, which only a property
        # precedes. It would quantize the layers before the first one with gates, which refuses.
        return functools.partial(self._refuse, "model.quantize")

    def save_to_preset(self, *args: Any, **kwargs: Any) -> None:
        # KerasHub would not know the model's class, and leaves out what builds it again.
        self._refuse("save_to_preset, or save it with save")

    def _refuse(self, action: str, *args: Any, **kwargs: Any) -> None:
        raise InputError(f"{self.name} is pruned: call sc.strip_pruning on it before {action}")

    def __reduce__(self) -> tuple[Any, ...]:
        # Keras names the class, which no module contains.
        return _unpickled, super().__reduce__()[1]

    def train_step(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return {**super().train_step(*args, **kwargs), **self.pruning.logs()}

    def train_on_batch(self, *args: Any, return_dict: bool = False, **kwargs: Any) -> Any:
        # Keras returns a scalar if the loss is the only value, so only named logs include the sparsity.
        logs = super().train_on_batch(*args, return_dict=True, **kwargs)
        if return_dict:
            return logs
        shown = self.pruning.logs()
        return keras_internals.flat_metrics(self, {name: v for name, v in logs.items() if name not in shown})

    def get_config(self) -> dict[str, Any]:
        """Returns the stock model's configuration, the method, and which layers have gates."""
        stock = type(self).stock_class
        order = {id(layer): index for index, layer in enumerate(_layers_except_gates(self))}
        gates_of = {order[id(layer)]: list(layer.gate_of.values()) for layer in gated_layers(self)}
        return {
            "stock_class": keras.saving.get_registered_name(stock),
            "module": stock.__module__,
            "config": self._stock_config(),
            "build_config": self.get_build_config(),
            "method": keras.saving.serialize_keras_object(self.pruning),
            "gated": list(gates_of),
            "frozen": [i for i, own in gates_of.items() if any(gate.independent for gate in own)],
            "fixed": [i for i, own in gates_of.items() if all(gate.fixed for gate in own)],
            "ungated_layers": self.pruning.ungated_layers,
        }

    def _stock_config(self) -> dict[str, Any]:
        # Keras records the arguments of classes without `get_config`, unless a subclass has one.
        pruned = type(self)
        self.__class__ = pruned.stock_class
        try:
            return self.get_config()
        finally:
            self.__class__ = pruned

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None) -> keras.Model:
        name = config["stock_class"]
        stock = {
            "module": config["module"],
            "class_name": name.split(">")[-1],
            "registered_name": name,
            "config": config["config"],
            "build_config": config["build_config"],
        }
        model = keras.saving.deserialize_keras_object(stock, custom_objects=custom_objects)
        method = keras.saving.deserialize_keras_object(config["method"], custom_objects=custom_objects)
        layers = _layers_except_gates(model)
        for index in config["gated"]:
            if index >= len(layers) or not layers[index].built:
                raise InputError(
                    f"a pruned {stock['class_name']} cannot be loaded from its file, because it creates its"
                    " weights when called: create it, call it on a batch, prune it, and use load_weights"
                )
            # Layers of a functional model already have their gates.
            if type(layers[index]) in GATED_FORMS:
                gate_in_place(layers[index], method.block_shape)
        _restore_normalized_kernels(model)
        for index in config["fixed"]:
            for gate in layers[index].gate_of.values():
                gate.fix()
        attach(method, model, [layers[index] for index in config["frozen"]])
        method.ungated_layers = config["ungated_layers"]
        make_pruned(model, method)
        return model


def _unpickled(archive: Any) -> keras.Model:
    """Loads what Keras pickles of a model: a `BytesIO` with a `.keras` file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.keras")
        path.write_bytes(archive.getvalue())
        return keras.saving.load_model(path, safe_mode=False)  # as Keras does for stock models


def _restore_normalized_kernels(model: keras.Model) -> None:
    """Lets `SpectralNormalization` layers that were built around gated layers normalize the raw weights."""
    for layer in keras_internals.nested_layers(model):
        if not isinstance(layer, keras.layers.SpectralNormalization):
            continue
        for name in getattr(layer.layer, "gate_of", ()):
            with keras_internals.unlocked(layer):
                layer.kernel = layer.layer.stored_weight(name)


def _remember_call(model: keras.Model, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Keeps what a subclassed model is called with as `called_with`, for `core.model_call`.

    These are positional and keyword arguments with a `tf.TensorSpec` for each tensor, with None for axes that
    were not always of the same size, and float32 for floats that Keras casts; arguments that were None are
    left out.
    """
    ignored = ("training", "mask")
    kwargs = {name: value for name, value in kwargs.items() if name not in ignored and value is not None}
    while args and args[-1] is None:
        args = args[:-1]
    if not all(tf.is_tensor(value) for value in keras.tree.flatten((args, kwargs))):
        return

    def spec(value: Any) -> tf.TensorSpec:
        is_cast = value.dtype.is_floating and value.dtype.name == model.compute_dtype  # mixed precision
        return tf.TensorSpec(value.shape, tf.float32 if is_cast else value.dtype)

    called = keras.tree.map_structure(spec, (args, kwargs))
    before = getattr(model, "called_with", None)
    if before is not None:
        try:
            called = keras.tree.map_structure(_common, before, called)
        except (TypeError, ValueError):  # another structure, or another number of axes
            called = before
    # Keras must not track it.
    object.__setattr__(model, "called_with", called)


def _common(spec: tf.TensorSpec, other: tf.TensorSpec) -> tf.TensorSpec:
    common = spec.most_specific_common_supertype([other])
    if common is None or common.shape.rank is None:
        raise ValueError("the tensors differ")
    return common


def attach(method: PruningMethod, model: keras.Model, frozen: list[keras.Layer]) -> None:
    """Attaches a method to the gates of a model.

    Args:
        frozen: frozen layers whose gates are trained, if the method trains gates.

    Raises:
        InputError: the method cannot prune the model; it can then be used for another one. Or another
            method prunes a layer of the model.
    """
    for layer in gated_layers(model):
        if any(gate.owner is not None and not gate.fixed for gate in layer.gate_of.values()):
            raise InputError(
                f"{layer.path or layer.name} of {model.name} is already pruned as a part of another model:"
                " call strip_pruning on that model first, or prune one model that contains both"
            )
    fresh = not method.gates
    independent = [gate for layer in frozen for gate in layer.gate_of.values() if not gate.fixed]
    for gate in independent:
        gate.trainable, gate.independent = method.trains_gates, True
    try:
        method.attach(model)
    except InputError:
        for gate in independent:
            gate.independent = False
        if fresh:  # otherwise it stays attached to another model
            method.detach()
        raise
    for gate in method.gates:
        gate.owner, gate.driven = method, True


def new_optimizer(model: keras.Model) -> keras.optimizers.Optimizer | None:
    """Returns an optimizer with the settings of a compiled model's; None if it has none.

    An optimizer that was built without the gates cannot add them.

    Raises:
        InputError: the optimizer, or a part of it, has no configuration.
    """
    if not model.compiled or model.optimizer is None:
        return None
    try:
        return keras_internals.new_optimizer_like(model.optimizer)
    except (AttributeError, NotImplementedError, TypeError, ValueError) as error:
        raise InputError(
            f"{model.name} is compiled with an optimizer that cannot be created again, because"
            f" {type(model.optimizer).__name__} or its schedule has no complete get_config ({error}): call"
            " prune before compile"
        ) from error


def make_pruned(
    model: keras.Model, method: PruningMethod, optimizer: keras.optimizers.Optimizer | None = None
) -> None:
    """Turns a model with gates, to which `method` is attached, into a `PrunedModel`.

    Args:
        optimizer: replaces that of a compiled model.
    """
    model.__class__ = _pruned_form(type(model))
    # Keras must not track this attribute: the model saves the method's state itself.
    object.__setattr__(model, "pruning", method)
    if optimizer is not None:
        model.optimizer = method.wrap(optimizer)
    forget_compiled_functions(model)


def make_stock(model: keras.Model) -> None:
    """Restores the original class of a model without gates, which is then not compiled."""
    if isinstance(model, PrunedModel):
        model.__class__ = type(model).stock_class
        object.__delattr__(model, "pruning")
    model.optimizer = None
    model.compiled = False
    forget_compiled_functions(model)


def forget_compiled_functions(model: keras.Model) -> None:
    """Drops the functions that Keras traced for `model` and all models with the same layers.

    They contain the old layers.
    """
    parts = keras_internals.nested_layers(model)
    changed = {id(part) for part in parts}
    models = [part for part in parts if isinstance(part, keras.Model)]
    # A layer does not know the models that contain it.
    for other in gc.get_objects():
        if issubclass(type(other), keras.Model) and any(vars(other).get(name) for name in _COMPILED):
            layers = keras_internals.nested_layers(other, include_self=False)
            if any(id(layer) in changed for layer in layers):
                models.append(other)
    for part in models:
        for name in vars(part).keys() & set(_COMPILED):
            setattr(part, name, None)


def _layers_except_gates(model: keras.Model) -> list[keras.Layer]:
    """Returns all nested layers except gates, in Keras's order, which does not depend on gates."""
    layers = keras_internals.nested_layers(model, include_self=False)
    return [layer for layer in layers if not isinstance(layer, Gate)]


_PRUNED_FORMS: dict[type[keras.Model], type[keras.Model]] = {}


def _pruned_form(stock: type[keras.Model]) -> type[keras.Model]:
    if stock not in _PRUNED_FORMS:
        form = type(f"Pruned{stock.__name__}", (PrunedModel, stock), {"stock_class": stock})
        # All classes share a registered name that new processes know; `from_config` finds the stock class.
        _PRUNED_FORMS[stock] = keras.saving.register_keras_serializable("tfsparsecap", "PrunedModel")(form)
        keras.saving.get_custom_objects()[form.__name__] = form  # .h5 files contain the name of the class
    return _PRUNED_FORMS[stock]


for _stock in (keras.Model, keras.Sequential, keras_internals.Functional):
    _pruned_form(_stock)
