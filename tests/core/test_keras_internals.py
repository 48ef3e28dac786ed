"""Checks that all private names that the project uses still exist after an upgrade."""

import importlib
import os
import subprocess
import sys
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.core import keras_internals
from tfsparsecap.errors import InputError


@pytest.fixture(scope="module")
def model():
    layers = [keras.Input((3,)), keras.layers.Dense(4), keras.layers.Dense(2, kernel_regularizer="l2")]
    model = keras.Sequential(layers)
    model.compile("sgd", "mse", metrics=["mae"], run_eagerly=True)
    model.optimizer.build(model.trainable_variables)
    return model


def built_with_averages(model):
    optimizer = keras.optimizers.Adam(use_ema=True)
    optimizer.build(model.trainable_variables)
    return optimizer


def excluding(model):
    optimizer = keras.optimizers.AdamW()
    optimizer.exclude_from_weight_decay(model.trainable_variables)
    return optimizer


def test_the_error_of_a_failed_conversion_is_an_exception():
    assert issubclass(keras_internals.conversion_error(), Exception)


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (lambda model: model, "_flatten_layers"),
        (lambda model: model, "_layers"),
        (lambda model: model, "_clear_losses"),
        (lambda model: model, "_flatten_metrics_in_order"),
        (lambda model: model, "_functional"),
        (lambda model: model._functional, "_nodes_by_depth"),
        (lambda model: model._functional, "_inputs_struct"),
        (lambda model: model._functional, "_outputs_struct"),
        (lambda model: model.outputs[0], "_keras_history"),
        (lambda model: keras.layers.Masking()(model.outputs[0]), "_keras_mask"),
        (lambda model: model.layers[0], "_call_has_training_arg"),
        (lambda model: model.layers[0], "_trainable_variables"),
        (lambda model: model.layers[0], "_non_trainable_variables"),
        (lambda model: model.layers[0], "_remat_mode"),
        (lambda model: model.layers[0], "_tracker"),
        (lambda model: model.layers[0]._tracker, "lock"),
        (lambda model: model.layers[0]._tracker, "unlock"),
        (lambda model: model.layers[0]._tracker, "untrack"),
        (lambda model: model.layers[0].kernel, "_value"),
        (lambda model: model.optimizer, "_trainable_variables"),
        (lambda model: model.optimizer, "_learning_rate"),
        (lambda model: model.optimizer, "_all_reduce_sum_gradients"),
        (lambda model: model.optimizer, "_apply_weight_decay"),
        (lambda model: model.optimizer, "_use_weight_decay"),
        (lambda model: excluding(model), "_exclude_from_weight_decay"),
        (lambda model: excluding(model), "_exclude_from_weight_decay_pattern"),
        (lambda model: keras.callbacks.SwapEMAWeights(), "_ema_weights_in_model"),
        (lambda model: keras.callbacks.SwapEMAWeights(), "_apply_to_ema_optimizers"),
        (lambda model: keras_internals.global_state, "get_global_attribute"),
        (lambda model: keras.layers.Lambda(abs), "_output_shape"),
        (lambda model: keras.layers.LSTMCell(2), "get_dropout_mask"),
        (lambda model: keras_internals.ConvLSTMCell, "get_dropout_mask"),
        (lambda model: built_with_averages(model), "_model_variables_moving_average"),
        (lambda model: tf.__internal__, "FuncGraph"),
        (lambda model: keras_internals.pywrap_tfe, "TFE_Py_TapeSetIsStopped"),
        (lambda model: keras_internals.model_optimization()[0], "PolynomialDecay"),
        (lambda model: keras_internals.model_optimization()[0], "ConstantSparsity"),
        (lambda model: keras_internals.model_optimization()[1].Pruning, "conditional_mask_update"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_private_name_exists(model, owner, name):
    held = owner(model)
    assert hasattr(held, name), (
        f"{name} of {held!r} no longer exists (Keras {keras.__version__}, TensorFlow {tf.__version__}): adapt"
        " tfsparsecap/core/keras_internals.py"
    )


def test_the_call_context_exists_only_during_a_call_and_has_its_training_flag():
    seen = []

    class Inner(keras.layers.Layer):
        def call(self, inputs):
            seen.append((keras_internals.call_context(), keras_internals.training_of_call()))
            return inputs

    class Outer(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def call(self, inputs, training=False):
            return self.inner(self.inner(inputs))

    Outer()(tf.ones([1]), training=True)
    (first, training), (second, _) = seen[-2:]  # building the layers may also call them
    assert first is second and first is not None and training is True
    assert keras_internals.call_context() is None and keras_internals.training_of_call() is None


def test_layers_are_listed_with_and_without_nested_ones(model):
    outer = keras.Sequential([keras.Input((3,)), model])
    assert keras_internals.nested_layers(outer)[0] is outer
    assert set(model.layers) < set(keras_internals.nested_layers(outer, include_self=False))
    assert model in keras_internals.sublayers(outer)
    assert not set(model.layers) & set(keras_internals.sublayers(outer))
    optimizer = keras.optimizers.SGD()
    optimizer.build(model.trainable_variables)
    assert keras_internals.variable_index(optimizer, model.trainable_variables[1]) == 1
    assert keras_internals.own_weights(model) == []
    assert [weight.name for weight in keras_internals.own_weights(model.layers[0])] == ["kernel", "bias"]


def test_sublayers_can_be_added_to_an_unlocked_layer_and_removed(model):
    dense, added = model.layers[0], keras.layers.Dropout(0.5)
    with keras_internals.unlocked(dense):
        dense.added = added
    assert added in keras_internals.nested_layers(dense)
    with keras_internals.unlocked(dense):
        del dense.added
        keras_internals.untrack(dense, added)
    assert added not in keras_internals.nested_layers(dense)
    with pytest.raises(ValueError, match="already built"):
        dense.added = added


def test_code_that_runs_again_for_the_gradients_is_recognised():
    seen = []

    def function(x):
        seen.append((keras_internals.recording_is_stopped(), keras_internals.will_be_recomputed()))
        return 2 * x

    x = tf.Variable(1.0)
    with tf.GradientTape() as tape:
        y = keras.remat(function)(function(x))
        with tape.stop_recording():
            function(x)
    tape.gradient(y, x)
    assert seen == [(False, False), (True, True), (False, False), (False, False)]


def test_a_variable_is_read_in_its_own_dtype():
    variable = keras.Variable(np.ones(2, "float32"))
    with keras.src.backend.common.variables.AutocastScope("float16"):
        assert variable.value.dtype == "float16"
        assert keras_internals.uncast_value(variable).dtype == "float32"


def test_rematerialized_layers_are_recognised(model):
    with keras.RematScope("full"):
        assert keras_internals.is_rematerialized(keras.layers.Dense(2))
    assert not keras_internals.is_rematerialized(model.layers[0])


def test_metrics_are_flattened_in_their_order_and_losses_cleared(model):
    model(tf.ones([1, 3]))
    assert model.losses
    keras_internals.clear_losses(model)
    model.train_on_batch(np.ones((2, 3)), np.ones((2, 2)))
    assert keras_internals.flat_metrics(model, {"mae": 2.0, "loss": 1.0}) == [1.0, 2.0]


def test_the_source_of_a_learning_rate_is_its_schedule():
    schedule = keras.optimizers.schedules.ExponentialDecay(0.1, 10, 0.5)
    assert keras_internals.learning_rate_source(keras.optimizers.SGD(schedule)) is schedule
    assert float(keras_internals.learning_rate_source(keras.optimizers.SGD(0.5))) == 0.5


def test_the_arguments_of_compile_are_the_given_objects():
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])

    def loss(targets, outputs):
        return targets - outputs

    metric = keras.metrics.Mean()
    model.compile("sgd", loss, metrics=[metric], steps_per_execution=2)
    found = keras_internals.compile_arguments(model)
    assert found["loss"] is loss and found["metrics"][0] is metric and found["steps_per_execution"] == 2


def test_a_copy_of_a_metric_has_the_same_function():
    metric = keras.metrics.MeanMetricWrapper(lambda a, b, factor: factor * (a - b), name="mine", factor=2.0)
    copy = keras_internals.copy_of_metric(metric)
    copy.update_state(np.float32([[3.0]]), np.float32([[1.0]]))
    assert (copy.name, float(copy.result()), float(metric.result())) == ("mine", 4.0, 0.0)
    assert keras_internals.copy_of_metric(keras.metrics.TopKCategoricalAccuracy(7)).k == 7


def test_a_new_optimizer_like_another_excludes_the_same_variables_from_weight_decay(model):
    kernel, bias = model.layers[0].kernel, model.layers[0].bias
    inner = keras.optimizers.AdamW(0.5)
    inner.exclude_from_weight_decay(var_list=[kernel])
    new = keras_internals.new_optimizer_like(keras.optimizers.LossScaleOptimizer(inner)).inner_optimizer
    assert new is not inner and not new.built and float(new.learning_rate) == 0.5
    assert not new._use_weight_decay(kernel) and new._use_weight_decay(bias)


def test_optimizer_variables_are_the_variables_it_was_built_for(model):
    assert list(keras_internals.optimizer_variables(model.optimizer)) == list(model.trainable_variables)


def test_complete_gradients_are_not_summed_again():
    inner = keras.optimizers.SGD(0.5)
    outer = keras.optimizers.LossScaleOptimizer(inner)
    pairs = [(tf.ones(2), tf.Variable([1.0, 2.0]))]
    keras_internals.take_complete_gradients(outer)
    for optimizer in (outer, inner):
        assert keras_internals.takes_complete_gradients(optimizer)
        assert optimizer._all_reduce_sum_gradients(pairs) == pairs
    keras_internals.take_complete_gradients(outer, False)
    assert not any(map(keras_internals.takes_complete_gradients, (outer, inner)))
    assert "_all_reduce_sum_gradients" not in vars(inner) and callable(inner._all_reduce_sum_gradients)


def test_graphs_of_functions_and_loops_are_distinguished():
    graphs = []

    @tf.function
    def traced(value):
        graphs.append(tf.compat.v1.get_default_graph())

        def body(number):
            graphs.append(tf.compat.v1.get_default_graph())
            return (number + value,)

        return tf.while_loop(lambda number: number < 3.0, body, (value,))

    traced(tf.constant(1.0))
    assert keras_internals.is_function_graph(graphs[0]) and not keras_internals.is_nested_graph(graphs[0])
    assert keras_internals.is_nested_graph(graphs[1]) and not keras_internals.is_function_graph(graphs[1])
    assert not keras_internals.is_nested_graph(tf.Graph())


def test_model_optimization_leaves_the_environment_unchanged(monkeypatch):
    def imported(name):  # a stand-in that sets the variable as the package does on its first import
        if name.startswith("tensorflow_model_optimization"):
            os.environ["TF_USE_LEGACY_KERAS"] = "1"

    monkeypatch.setattr(importlib, "import_module", imported)
    for before in (None, "0"):
        monkeypatch.delenv("TF_USE_LEGACY_KERAS", raising=False)
        if before is not None:
            monkeypatch.setenv("TF_USE_LEGACY_KERAS", before)
        keras_internals.model_optimization()
        assert os.environ.get("TF_USE_LEGACY_KERAS") == before


@pytest.mark.slow
def test_keras_cv_works_after_model_optimization_was_imported():
    code = (
        "from tfsparsecap import keras_internals; keras_internals.model_optimization();"
        "from tfsparsecap.captioning.data.augmentation import Augmentation; Augmentation(['RandomHue'], 32)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "TF_USE_LEGACY_KERAS"}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr


def test_the_error_for_missing_tfmot_explains_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_model_optimization", None)
    for name in [name for name in sys.modules if name.startswith("tensorflow_model_optimization.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(InputError, match=r"pip install 'tfsparsecap\[baselines\]'"):
        keras_internals.model_optimization()


def test_reads_of_variables_outside_of_layers_are_recorded(model):
    kernel, outside = model.layers[0].kernel, keras.Variable([1.0])
    with keras_internals.recorded_reads() as found:
        model.layers[0](np.ones((2, 3), "float32"))
        keras.ops.transpose(kernel)
        thread = threading.Thread(target=lambda: outside.value)
        thread.start()
        thread.join()
    assert [id(one) for one in found] == [id(kernel)]
    keras.ops.transpose(kernel)
    assert len(found) == 1


def test_seeds_do_not_change_while_they_are_fixed():
    generator = keras.random.SeedGenerator(3)
    before = np.array(generator.state)
    with keras_internals.fixed_seeds():
        first, second = (keras.random.uniform((2,), seed=generator) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(generator.state, before)
    np.testing.assert_array_equal(first, keras.random.uniform((2,), seed=generator))
    assert not np.array_equal(generator.state, before)


def test_signs_are_computed_without_bits():
    values = np.array([-np.inf, -1e30, -2, -1e-30, 0.0, 1e-30, 2, np.inf], np.float32)
    signs, best = keras.ops.signbit(values), keras.ops.argmax(-values[2:6])
    with keras_internals.computed_signs():
        run = tf.function(lambda x: (keras.ops.signbit(x), keras.ops.argmax(-x[2:6])))
        found = run(tf.constant(values))
        operations = {
            one.type for one in run.get_concrete_function(tf.constant(values)).graph.get_operations()
        }
        assert keras.ops.signbit(np.array([-1, 0])).numpy().tolist() == [True, False]
    np.testing.assert_array_equal(found[0], signs)
    assert found[1] == best and "BitwiseAnd" not in operations


def test_a_thread_creates_no_more_weights_than_allowed():
    before = keras.Variable._initialize_with_initializer
    with keras_internals.limited_weights(1000):
        keras.layers.Dense(10).build((None, 20))
        with pytest.raises(MemoryError, match=r"kernel of shape \(20, 10\) is too large"):
            keras.layers.Dense(10).build((None, 20))
        other = threading.Thread(target=keras.layers.Dense(100).build, args=((None, 200),))
        other.start()
        other.join()
    keras.layers.Dense(100).build((None, 200))
    assert keras.Variable._initialize_with_initializer is before
