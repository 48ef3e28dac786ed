"""Steps that XLA compiles: equal to those without it, for all pruning methods; what cannot be compiled."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.captioning.models import SoftAttention
from tfsparsecap.captioning.settings.training_section import Training
from tfsparsecap.captioning.training.adam import make_optimizer
from tfsparsecap.captioning.training.loop import Loop
from tfsparsecap.errors import InputError
from tfsparsecap.pruning import Magnitude, prune

STEPS = 3
#: Method -> options with which it changes gates within these steps.
METHODS = {
    "supermask": {"total_steps": STEPS},
    "supermask_loss": {"total_steps": STEPS, "end": 0.7},
    "gradual": {"total_steps": STEPS, "begin": 0.3, "end": 1.0},
    "magnitude": {"total_steps": STEPS, "begin": 0.4},
    "snip": {"total_steps": STEPS},
    "lottery": {"total_steps": STEPS},
    "relevance": {"lower_bound": 0.0, "metric": "val_loss"},  # as l1 and l2, but for the formula
}


def network(method=None):
    """A small network on pairs of words, pruned in blocks and single gates, and its optimizer."""
    keras.utils.set_random_seed(3)
    words = keras.Input((2,), name="words", dtype="int32")
    flat = keras.layers.Flatten()(keras.layers.Embedding(12, 4)(words))
    model = keras.Model({"words": words}, keras.layers.Dense(3)(flat))
    if method is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that blocks are coarse for so few weights
            prune(model, method, sparsity=0.5, block_shape=(2, 1), **METHODS[method])
        if method == "relevance":
            model.pruning._due.assign(model.pruning.gated_size // 2)  # as after a validation
    settings = Training(learning_rate=0.05, schedule="cosine", warmup_steps=1, weight_decay=0.01)
    model.compile(make_optimizer(settings, STEPS), "mse")
    return model


def batches():
    random = np.random.default_rng(1)
    words = random.integers(0, 12, (STEPS * 4, 2)).astype("int32")
    targets = random.normal(size=(STEPS * 4, 3)).astype("float32")
    return tf.data.Dataset.from_tensor_slices(({"words": words}, targets)).batch(4, drop_remainder=True)


def trained(model, data, **options):
    """Logs of all steps, and the values of all variables afterwards; steps without XLA are not compiled."""
    loop, variables = Loop(model, **options), [*model.variables, *model.optimizer.variables]
    tf.config.run_functions_eagerly(not options.get("jit_compile"))
    try:
        logs = [{name: float(value) for name, value in loop.train_step(batch).items()} for batch in data]
    finally:
        tf.config.run_functions_eagerly(False)
    return logs, [keras.ops.convert_to_numpy(variable) for variable in variables]


def assert_equal_training(found, expected):
    for one, other in zip(found[0], expected[0], strict=True):
        assert one == pytest.approx(other, rel=1e-6, abs=1e-6)
    for one, other in zip(found[1], expected[1], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("method", [None, *METHODS])
def test_steps_of_all_methods_are_those_without_xla(method):
    found, expected = (trained(network(method), batches(), jit_compile=jit) for jit in (True, False))
    assert_equal_training(found, expected)
    assert method is None or found[0][-1]["sparsity"] == pytest.approx(0.5, abs=0.03)


def captioner(seed):
    keras.utils.set_random_seed(seed)
    sizes = {"embedding_size": 4, "rnn_size": 4, "attention_size": 3, "feature_size": 5}
    return SoftAttention(9, dropout=0.0, **sizes)


def taught_captioner():
    model = captioner(1)
    settings = Training(clip_norm=0.1, average_decay=0.9, label_smoothing=0.1)
    model.compile(make_optimizer(settings, 2))
    model.label_smoothing = settings.label_smoothing
    return model


@pytest.mark.slow
def test_a_captioner_with_a_teacher_takes_the_steps_without_xla():
    random = np.random.default_rng(0)
    features, teacher = random.normal(size=(3, 4, 5)).astype("float32"), captioner(2)
    targets = tf.constant([[4, 2], [2, 0], [8, 7]])
    tokens = tf.concat([tf.ones([3, 1], tf.int32), targets[:, :-1]], axis=1)
    batch = {"features": features, "teacher0_features": -features, "tokens": tokens}, targets
    found, expected = (
        trained(taught_captioner(), [batch] * 2, teachers=[teacher], jit_compile=jit) for jit in (True, False)
    )
    assert_equal_training(found, expected)


class Python(keras.layers.Layer):
    """Contains an operation that XLA cannot compile."""

    def call(self, x):
        return x + tf.ensure_shape(tf.numpy_function(np.zeros_like, [x], x.dtype), x.shape)


def uncompilable():
    keras.utils.set_random_seed(3)
    words = keras.Input((2,), name="words", dtype="int32")
    hidden = Python()(keras.layers.Flatten()(keras.layers.Embedding(12, 4)(words)))
    model = keras.Model({"words": words}, keras.layers.Dense(3)(hidden))
    model.compile("adam", "mse")
    return model


@pytest.fixture
def gpu(monkeypatch):
    """Makes `auto` choose XLA, as on a machine with a GPU."""
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind=None: [kind])


@pytest.mark.slow
def test_an_operation_that_cannot_be_compiled_is_named():
    with pytest.raises(InputError, match=r"is true, but XLA cannot compile TensorFlow's .*PyFunc"):
        trained(uncompilable(), batches(), jit_compile=True)


@pytest.mark.slow
def test_auto_continues_without_xla_if_it_fails(gpu):
    with pytest.warns(UserWarning, match=r"XLA failed \(.*\): the training continues without it"):
        found = trained(uncompilable(), batches(), jit_compile="auto")
    assert_equal_training(found, trained(uncompilable(), batches()))


def uses_xla(model, jit_compile="auto", **options):
    return not hasattr(Loop(model, jit_compile=jit_compile, **options).train_step, "get_concrete_function")


def test_auto_uses_xla_on_a_gpu_only(gpu, monkeypatch):
    assert uses_xla(network()) and uses_xla(network("supermask"))
    assert not uses_xla(network(), jit_compile=False)
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind=None: [])
    assert not uses_xla(network()) and uses_xla(network(), jit_compile=True)


class Unsupported(Magnitude):
    supports_jit = False


def test_layers_and_methods_may_not_support_xla(gpu):
    layer = network()
    layer.layers[-1].supports_jit = False
    method = prune(network(), Unsupported(0.5))
    for model, message in (
        (layer, r"the layer dense\S* \(Dense\): set"),
        (method, "method Unsupported: set"),
    ):
        assert not uses_xla(model)
        with pytest.raises(InputError, match=message):
            uses_xla(model, jit_compile=True)


def test_several_devices_do_not_use_xla(gpu):
    class Two:
        num_replicas_in_sync = 2
        scope = staticmethod(warnings.catch_warnings)

    assert not uses_xla(network(), strategy=Two())
    with pytest.raises(InputError, match=r"cannot compile steps of 2 devices together: set training\."):
        uses_xla(network(), jit_compile=True, strategy=Two())
