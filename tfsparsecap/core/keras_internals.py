"""Functions that wrap private names of Keras, TensorFlow and tensorflow-model-optimization.

No other module of `tfsparsecap` uses such names. After an upgrade, `tests/core/test_keras_internals.py`
reports those that no longer exist.
"""

import contextlib
import functools
import importlib
import math
import os
import re
import threading
import traceback
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.common import global_state
from keras.src.backend.tensorflow import numpy as tensorflow_numpy
from keras.src.layers.rnn.conv_lstm import ConvLSTMCell as ConvLSTMCell
from keras.src.models.functional import Functional
from tensorflow.python import pywrap_tfe
from tensorflow.python.ops import custom_gradient

from tfsparsecap.core.installation import pip_install
from tfsparsecap.errors import InputError

# One thread at a time replaces a method of Keras; it may do so again inside.
_REPLACING = threading.RLock()
_LEGACY = "TF_USE_LEGACY_KERAS"
_TFMOT = "tensorflow_model_optimization.python.core.sparsity.keras"


def call_context() -> Any | None:
    """Returns Keras's context object of the outermost layer call of this thread; None outside of any call.

    Keras drops it, and everything attached to it, when the call returns or raises.
    """
    return global_state.get_global_attribute("current_call_ctx")


def training_of_call() -> Any:
    """Returns the `training` argument that layers called now inherit: a bool, a tensor or None."""
    context = call_context()
    return None if context is None else context.get_value("training")


def recording_is_stopped() -> bool:
    """Whether gradients are not recorded now, as inside `keras.remat`, which computes them later."""
    return pywrap_tfe.TFE_Py_TapeSetIsStopped()


def will_be_recomputed() -> bool:
    """Whether the code runs inside `tf.recompute_grad` or `keras.remat`, and runs again for the gradients."""
    if not recording_is_stopped():
        return False
    frames = (frame for frame, _ in traceback.walk_stack(None))
    return any(frame.f_code.co_filename == custom_gradient.__file__ for frame in frames)


def nested_layers(layer: keras.Layer, include_self: bool = True) -> list[keras.Layer]:
    """Returns `layer` and all layers inside it, in Keras's order."""
    return list(layer._flatten_layers(include_self=include_self, recursive=True))


def sublayers(layer: keras.Layer) -> list[keras.Layer]:
    """Returns the direct sublayers of `layer`."""
    return list(layer._layers)


def own_weights(layer: keras.Layer) -> list[keras.Variable]:
    """Returns the weights of `layer` without those of its sublayers."""
    return [*layer._trainable_variables, *layer._non_trainable_variables]


def variable_index(optimizer: keras.Optimizer, variable: keras.Variable | tf.Variable) -> int:
    """Returns the index of a variable among those that `optimizer` was built for."""
    return optimizer._get_variable_index(variable)


class DecayInUpdate(keras.optimizers.Adam):
    """Adam whose `update_step` must decay the variables that `decays`: Keras decays all with one rate."""

    def _apply_weight_decay(self, variables: Any) -> None:
        pass

    def decays(self, variable: keras.Variable | tf.Variable) -> bool:
        """Whether weight decay applies to a variable."""
        return self.weight_decay is not None and self._use_weight_decay(variable)


def is_rematerialized(layer: keras.Layer) -> bool:
    """Whether `layer` was created under `keras.RematScope`."""
    return layer._remat_mode is not None


@contextlib.contextmanager
def unlocked(layer: keras.Layer) -> Iterator[None]:
    """Allows adding weights and sublayers to a built layer, and removing them, inside the block."""
    layer._tracker.unlock()
    try:
        yield
    finally:
        layer._tracker.lock()


def untrack(layer: keras.Layer, value: Any) -> None:
    """Stops `layer` from tracking a deleted sublayer. (Keras does this only for variables.)"""
    layer._tracker.untrack(value)


@contextlib.contextmanager
def _replaced(owner: Any, name: str, replacement: Callable) -> Iterator[None]:
    """Inside the block, a call of `owner.name` in this thread is one of `replacement(original, …)`."""
    with _REPLACING:
        original, thread = getattr(owner, name), threading.get_ident()

        @functools.wraps(original)
        def call(*arguments: Any, **options: Any) -> Any:
            if threading.get_ident() != thread:
                return original(*arguments, **options)
            return replacement(original, *arguments, **options)

        setattr(owner, name, call)
        try:
            yield
        finally:
            setattr(owner, name, original)


def limited_weights(size: int) -> contextlib.AbstractContextManager[None]:
    """Raises MemoryError in the block before this thread creates variables of more than `size` bytes."""
    remaining_bytes = size

    def initialize(create: Callable, variable: keras.Variable, initializer: Any) -> None:
        nonlocal remaining_bytes
        remaining_bytes -= math.prod(variable._shape) * tf.dtypes.as_dtype(variable._dtype).size
        if remaining_bytes < 0:
            raise MemoryError(f"{variable.path} of shape {tuple(variable._shape)} is too large")
        create(variable, initializer)

    return _replaced(keras.Variable, "_initialize_with_initializer", initialize)


@contextlib.contextmanager
def recorded_reads(in_layers: bool = False) -> Iterator[list[keras.Variable]]:
    """Lists the variables whose values this thread reads in the block, by default outside of layer calls."""
    with _REPLACING:
        getter, thread = keras.Variable.value.fget, threading.get_ident()
        variables: list[keras.Variable] = []

        def value(self: keras.Variable) -> Any:
            if threading.get_ident() == thread and (in_layers or call_context() is None):
                variables.append(self)
            return getter(self)

        keras.Variable.value = property(value)
        try:
            yield variables
        finally:
            del keras.Variable.value  # a base class defines it


def fixed_seeds() -> contextlib.AbstractContextManager[None]:
    """Lets this thread draw random numbers in the block without changing the state of a `SeedGenerator`."""
    generator = keras.random.SeedGenerator
    return _replaced(generator, "next", lambda draw, seeds, ordered=True: seeds.state.value * 1)


def layer_scopes() -> contextlib.AbstractContextManager[None]:
    """Lets this thread name the operations that it traces in the block after layers: `model/dense/MatMul`.

    Keras opens a layer's scope twice for each call, and TensorFlow numbers the second: `dense` would be
    `dense_1`. Characters that TensorFlow refuses become `_`.
    """

    def open_unnumbered(open_scope: Callable, layer: keras.Layer) -> Any:
        scope, name = open_scope(layer), re.sub(r"[^A-Za-z0-9_.>-]", "_", layer.name)
        # TensorFlow does not number a name that ends with a slash.
        scope._tf_name_scope = tf.name_scope(f"{tf.get_current_name_scope()}/{name}/".lstrip("/"))
        return scope

    return _replaced(keras.Layer, "_open_name_scope", open_unnumbered)


def computed_signs() -> contextlib.AbstractContextManager[None]:
    """Lets this thread compute signs in the block, which Keras reads from the bits of floats, as in `argmax`.

    TensorFlow Lite has no operation for bits. -0 counts as 0, which it is equal to.
    """

    def signbit(read: Callable, x: Any) -> tf.Tensor:
        x = tf.convert_to_tensor(x)
        return x < 0 if x.dtype.is_floating else read(x)

    return _replaced(tensorflow_numpy, "signbit", signbit)


def copy_of_lambda(layer: keras.layers.Lambda, name: str) -> keras.layers.Lambda:
    """Returns a `Lambda` layer with the same function and another name."""
    return keras.layers.Lambda(
        layer.function,
        output_shape=layer._output_shape,
        mask=layer.mask,
        arguments=layer.arguments,
        name=name,
        dtype=layer.dtype_policy,
    )


def uncast_value(variable: keras.Variable) -> tf.Tensor | tf.Variable:
    """Returns the variable's value in its own dtype, even in an autocast scope."""
    return variable._value


def flat_metrics(model: keras.Model, logs: dict[str, Any]) -> Any:
    """Returns `logs` in the format of `train_on_batch`: in metric order, a scalar if there is only one."""
    return model._flatten_metrics_in_order(logs)


def clear_losses(model: keras.Model) -> None:
    """Drops the regularization losses collected by earlier calls."""
    model._clear_losses()


def optimizer_variables(optimizer: keras.optimizers.Optimizer) -> list[keras.Variable]:
    """Returns the variables that a built optimizer updates."""
    return optimizer._trainable_variables


def new_optimizer_like(optimizer: keras.optimizers.Optimizer) -> keras.optimizers.Optimizer:
    """Returns an optimizer with the same settings that is not built.

    Unlike a copy by configuration, it excludes the same variables from weight decay.
    """
    new = type(optimizer).from_config(optimizer.get_config())
    old, inner = optimizer, new
    while old is not None:
        for name in ("_exclude_from_weight_decay", "_exclude_from_weight_decay_pattern"):
            if name in vars(old):
                object.__setattr__(inner, name, vars(old)[name])
        old, inner = getattr(old, "inner_optimizer", None), getattr(inner, "inner_optimizer", None)
    return new


def compile_arguments(model: keras.Model) -> dict[str, Any]:
    """Returns the arguments that a model was compiled with, as they were given."""
    return dict(model._compile_config.config)


def copy_of_metric(metric: keras.Metric) -> keras.Metric:
    """Returns a new metric with the same settings, also if its function cannot be serialized."""
    if (kind := type(metric)) is keras.metrics.MeanMetricWrapper:
        return kind(metric._fn, name=metric.name, dtype=metric.dtype, **metric._fn_kwargs)
    return type(metric).from_config(metric.get_config())


def learning_rate_source(optimizer: keras.optimizers.Optimizer) -> Any:
    """Returns the optimizer's learning rate: a variable or a schedule, not the schedule's current value."""
    return getattr(optimizer, "_learning_rate", None)


def take_complete_gradients(optimizer: keras.optimizers.Optimizer, complete: bool = True) -> None:
    """Sets whether `apply` gets gradients that are summed over all replicas already, and must not sum them.

    Also applies to the optimizers inside `optimizer`.
    """
    inner: keras.optimizers.Optimizer | None = optimizer
    while inner is not None:
        if complete:
            # Past Keras, which would track the attribute.
            object.__setattr__(inner, "_all_reduce_sum_gradients", list)
        elif takes_complete_gradients(inner):
            object.__delattr__(inner, "_all_reduce_sum_gradients")
        inner = getattr(inner, "inner_optimizer", None)


def takes_complete_gradients(optimizer: keras.optimizers.Optimizer) -> bool:
    """What `take_complete_gradients` has set; False for a new optimizer."""
    return "_all_reduce_sum_gradients" in vars(optimizer)


def swap_averages(in_model: bool) -> keras.callbacks.Callback:
    """Returns Keras's callback that puts the optimizer's averages into the model at the end of each epoch.

    Args:
        in_model: the averages are in the model now, as in a checkpoint of the end of an epoch.
    """
    callback = _SwapAverages(swap_on_epoch=True)
    callback._ema_weights_in_model = in_model
    return callback


def restart_averages(optimizer: keras.optimizers.Optimizer) -> None:
    """Sets the averages that a built optimizer keeps, if any, to the present values of the variables."""
    while hasattr(optimizer, "inner_optimizer"):
        optimizer = optimizer.inner_optimizer
    if optimizer.use_ema:
        averages = optimizer._model_variables_moving_average
        for variable, average in zip(optimizer._trainable_variables, averages, strict=True):
            average.assign(variable)


class _SwapAverages(keras.callbacks.SwapEMAWeights):
    """Finds the averages also if the loss is scaled and gates are pruned: two optimizers around one."""

    def _apply_to_ema_optimizers(self, tf_fn: Callable, backend_fn: Callable) -> None:
        optimizer = self.model.optimizer
        while hasattr(optimizer, "inner_optimizer"):
            optimizer = optimizer.inner_optimizer
        tf_fn(optimizer)


def is_nested_graph(graph: tf.Graph) -> bool:
    """Whether `graph` is the body of a loop or a condition inside a `tf.function`."""
    return isinstance(graph, tf.__internal__.FuncGraph) and type(graph) is not tf.__internal__.FuncGraph


def model_optimization() -> tuple[ModuleType, ModuleType]:
    """Returns tensorflow-model-optimization's modules `(pruning_schedule, pruning_impl)`.

    Importing the package sets an environment variable that switches later imports of TensorFlow to Keras 2.
    It is restored, so that child processes do not inherit it. keras-cv, which would fail, is imported before.

    Raises:
        InputError: the package is not installed.
    """
    with contextlib.suppress(ImportError):
        importlib.import_module("keras_cv")
    before = os.environ.get(_LEGACY)
    try:
        return (
            importlib.import_module(f"{_TFMOT}.pruning_schedule"),
            importlib.import_module(f"{_TFMOT}.pruning_impl"),
        )
    except ImportError as error:
        raise InputError(
            "gradual pruning needs tensorflow-model-optimization, which is not installed:"
            f" {pip_install('baselines')}"
        ) from error
    finally:
        os.environ.pop(_LEGACY, None)
        os.environ.update({} if before is None else {_LEGACY: before})


def conversion_error() -> type[Exception]:
    """Returns what TensorFlow raises if a model contains operations that TensorFlow Lite lacks."""
    return importlib.import_module("tensorflow.lite.python.convert_phase").ConverterError


def functional_of(model: Any) -> Any | None:
    """Returns a functional model itself, the functional model inside a `Sequential`, or None."""
    if isinstance(model, keras.Sequential):
        return model._functional
    return model if isinstance(model, Functional) else None


def functional_nodes(functional: Any) -> list[Any]:
    """Returns the calls of layers and operations in a functional model, in an order to execute them.

    A call has the attributes `operation`, `arguments` and `outputs`.
    """
    by_depth = functional._nodes_by_depth
    return [node for depth in sorted(by_depth, reverse=True) for node in by_depth[depth]]


def functional_structure(functional: Any) -> tuple[Any, Any]:
    """Returns the symbolic inputs and outputs of a functional model, in the structure they were given in."""
    return functional._inputs_struct, functional._outputs_struct


def producer(symbolic: keras.KerasTensor) -> Any:
    """Returns the layer or operation that returned a symbolic tensor."""
    return symbolic._keras_history.operation


def mask_of(symbolic: keras.KerasTensor) -> keras.KerasTensor | None:
    """Returns the mask that a layer attached to its symbolic output, or None."""
    return getattr(symbolic, "_keras_mask", None)


def takes_training(layer: keras.Layer) -> bool:
    """Whether the `call` method of a layer has an argument `training`."""
    return layer._call_has_training_arg


def optimizer_slots(optimizer: keras.optimizers.Optimizer) -> dict[str, list[keras.Variable | None]]:
    """Returns name -> what a built optimizer keeps for each variable that it updates, in their order."""
    count, others = len(optimizer._trainable_variables), ("_trainable_variables", "_variables")
    return {
        name: value
        for name, value in vars(optimizer).items()
        if isinstance(value, list)
        and len(value) == count
        and name not in others
        and all(slot is None or isinstance(slot, keras.Variable) for slot in value)
    }
