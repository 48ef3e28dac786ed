"""What a model is while it is pruned: its own class, with `PrunedModel` before it."""

import keras

from tfsparsecap.errors import InputError
from tfsparsecap.gates import Gate, drawn, gated_layers
from tfsparsecap.layers.gated import GATED_FORMS, gate_in_place
from tfsparsecap.pruning.method import PruningMethod


class PrunedModel:
    """Mixin: `call` draws the gates once, `compile` wraps the optimizer, `fit` shows the sparsity."""

    stock_class: type[keras.Model]
    pruning: PruningMethod

    def call(self, *args, **kwargs):
        # All gates follow the training flag of the model, whatever its layers are called with.
        with drawn(self, kwargs.get("training")):
            return super().call(*args, **kwargs)

    def compile(self, *args, **kwargs):
        super().compile(*args, **kwargs)
        if self.optimizer is not None:
            self.optimizer = self.pruning.wrap(self.optimizer)

    def compile_from_config(self, config: dict) -> None:
        if type(self).stock_class.compile_from_config is not keras.Model.compile_from_config:
            super().compile_from_config(config)
            return
        # Keras leaves this to classes with a `compile` of their own. What was saved are the arguments as the
        # user gave them.
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    def train_step(self, *args, **kwargs):
        return {**super().train_step(*args, **kwargs), **self.pruning.logs()}

    def train_on_batch(self, *args, return_dict: bool = False, **kwargs):
        # Keras returns a bare loss where it is all there is: the sparsity is for those who ask for names.
        logs = super().train_on_batch(*args, return_dict=True, **kwargs)
        if return_dict:
            return logs
        shown = self.pruning.logs()
        return self._flatten_metrics_in_order({name: v for name, v in logs.items() if name not in shown})

    def get_config(self) -> dict:
        """the stock model's configuration, the method, which layers have gates."""
        stock = type(self).stock_class
        order = {id(layer): index for index, layer in enumerate(_layers_but_gates(self))}
        return {
            "stock_class": keras.saving.get_registered_name(stock),
            "module": stock.__module__,
            "config": super().get_config(),
            "build_config": self.get_build_config(),
            "method": keras.saving.serialize_keras_object(self.pruning),
            "gated": [order[id(layer)] for layer in gated_layers(self)],
            "left_alone": self.pruning.left_alone,
        }

    @classmethod
    def from_config(cls, config: dict, custom_objects=None):
        name = config["stock_class"]
        stock = {
            "module": config["module"],
            "class_name": name.split(">")[-1],
            "registered_name": name if ">" in name else None,
            "config": config["config"],
            "build_config": config["build_config"],
        }
        model = keras.saving.deserialize_keras_object(stock, custom_objects=custom_objects)
        method = keras.saving.deserialize_keras_object(config["method"], custom_objects=custom_objects)
        layers = _layers_but_gates(model)
        for index in config["gated"]:
            if index >= len(layers) or not layers[index].built:
                raise InputError(
                    f"a pruned {stock['class_name']} cannot be made from its file, because its weights exist "
                    "only after a call: make it, call it on a batch, prune it, and use load_weights"
                )
            # Layers that a functional model lists come with their gates.
            if type(layers[index]) in GATED_FORMS:
                gate_in_place(layers[index], method.block_shape)
        method.attach(model)
        method.left_alone = config["left_alone"]
        turn_pruned(model, method)
        return model


def turn_pruned(model: keras.Model, method: PruningMethod) -> None:
    """Makes a model with gates, which `method` is attached to, a `PrunedModel`."""
    model.__class__ = _pruned_form(type(model))
    # A method is no layer: kept out of Keras's attribute tracking, its state is saved with the optimizer.
    object.__setattr__(model, "pruning", method)
    if model.compiled and model.optimizer is not None:
        # An optimizer that was built for the weights alone cannot take the gates: the same one starts afresh.
        model.optimizer = method.wrap(type(model.optimizer).from_config(model.optimizer.get_config()))
    _forget_compiled_functions(model)


def turn_stock(model: keras.Model) -> None:
    """Makes a model without gates one of its own class again, not compiled."""
    if isinstance(model, PrunedModel):
        model.__class__ = type(model).stock_class
        object.__delattr__(model, "pruning")
    model.optimizer = None
    model.compiled = False
    _forget_compiled_functions(model)


def _forget_compiled_functions(model: keras.Model) -> None:
    """Functions that Keras has traced know the layers as they were."""
    model.train_function = model.test_function = model.predict_function = None


def _layers_but_gates(model: keras.Model) -> list[keras.Layer]:
    """The nested layers in Keras's order, which stays the same when gates come and go."""
    layers = model._flatten_layers(include_self=False, recursive=True)
    return [layer for layer in layers if not isinstance(layer, Gate)]


_PRUNED_FORMS: dict[type[keras.Model], type[keras.Model]] = {}


def _pruned_form(stock: type[keras.Model]) -> type[keras.Model]:
    if stock not in _PRUNED_FORMS:
        form = type(f"Pruned{stock.__name__}", (PrunedModel, stock), {"stock_class": stock})
        # One registered name for all: a fresh process knows it, and its `from_config` finds the stock class.
        _PRUNED_FORMS[stock] = keras.saving.register_keras_serializable("tfsparsecap", "PrunedModel")(form)
    return _PRUNED_FORMS[stock]


_pruned_form(keras.Model)
