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
        (lambda model: model.layers[0]._open_name_scope(), "_tf_name_scope"),
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


def test_a_new_optimizer_like_another_excludes_the_same_variables_from_weight_decay(model):
    kernel, bias = model.layers[0].kernel, model.layers[0].bias
    inner = keras.optimizers.AdamW(0.5)
    inner.exclude_from_weight_decay(var_list=[kernel])
    new = keras_internals.new_optimizer_like(keras.optimizers.LossScaleOptimizer(inner)).inner_optimizer
    assert new is not inner and not new.built and float(new.learning_rate) == 0.5
    assert not new._use_weight_decay(kernel) and new._use_weight_decay(bias)


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
        "from tfsparsecap.core import keras_internals; keras_internals.model_optimization();"
        "from tfsparsecap.captioning.data.augmentation import Augmentation; Augmentation(['RandomHue'], 32)"
    )
    environment = {name: value for name, value in os.environ.items() if name != "TF_USE_LEGACY_KERAS"}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stderr


def test_the_error_for_missing_tfmot_explains_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_model_optimization", None)
    for name in [name for name in sys.modules if name.startswith("tensorflow_model_optimization.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(InputError, match=r"pip install .*\[baselines\]'"):
        keras_internals.model_optimization()


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
        outputs = run(tf.constant(values))
        operations = {
            operation.type
            for operation in run.get_concrete_function(tf.constant(values)).graph.get_operations()
        }
        assert keras.ops.signbit(np.array([-1, 0])).numpy().tolist() == [True, False]
    np.testing.assert_array_equal(outputs[0], signs)
    assert outputs[1] == best and "BitwiseAnd" not in operations


def test_operations_have_the_names_of_their_layers():
    shared = keras.layers.Dense(4, name="dense")
    rows = keras.Input((4,))
    network = keras.Model(rows, shared(keras.layers.Dense(4, name="dense_1")(shared(rows))), name="net")

    def products():
        function = tf.function(lambda x: network(x, training=False))
        graph = function.get_concrete_function(tf.TensorSpec((1, 4))).graph
        return [operation.name for operation in graph.get_operations() if operation.type == "MatMul"]

    before = products()
    with keras_internals.layer_scopes():
        assert products() == ["net/dense/MatMul", "net/dense_1/MatMul", "net/dense/MatMul_1"]
    assert products() == before


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
