"""The training loop on one device and on two, compared with Keras's `fit`."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.two_devices import two_devices
from tfsparsecap.captioning.models.plain_transformer import Transformer
from tfsparsecap.captioning.models.soft_attention import SoftAttention
from tfsparsecap.captioning.settings.sections import Training
from tfsparsecap.captioning.training.loop import STEPS_PER_REPORT, Loop, StepLogs
from tfsparsecap.captioning.training.phases import make_optimizer
from tfsparsecap.core.keras_internals import swap_averages
from tfsparsecap.errors import InputError
from tfsparsecap.pruning import Gradual, Magnitude, prune

WORDS, LENGTH = 12, 5


def batches(count=4, size=4, seed=0):
    random = np.random.default_rng(seed)
    targets = random.integers(2, WORDS, (count * size, LENGTH)).astype(np.int32)
    for row, length in enumerate(random.integers(1, LENGTH + 1, count * size)):
        targets[row, length:] = 0
    tokens = np.concatenate([np.ones((count * size, 1), np.int32), targets[:, :-1]], axis=1)
    features = random.normal(size=(count * size, 6, 8)).astype(np.float32)
    inputs = {"features": features, "tokens": tokens}
    return tf.data.Dataset.from_tensor_slices((inputs, targets)).batch(size, drop_remainder=True)


def make_captioner(optimizer=None, dropout=0.0):
    keras.utils.set_random_seed(7)
    model = SoftAttention(
        WORDS, embedding_size=6, rnn_size=8, attention_size=5, feature_size=8, dropout=dropout
    )
    model.compile(optimizer or keras.optimizers.Adam(0.01), jit_compile=False)
    return model


def weights(model):
    return [np.array(variable) for variable in model.trainable_variables]


def batches_of(epoch, context=None):
    """All batches; with a context, the parts of each batch one after the other."""
    return batches() if context is None else batches().rebatch(4 // context.num_replicas_in_sync)


class Recorder(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.losses, self.epochs = [], []

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(logs["loss"])

    def on_epoch_end(self, epoch, logs=None):
        self.epochs.append(dict(logs))


@pytest.mark.slow
def test_an_epoch_ends_with_averaged_weights_and_the_next_begins_with_the_weights(monkeypatch):
    monkeypatch.setattr(tf, "function", lambda step, **_: step)
    model = make_captioner(make_optimizer(Training(average_decay=0.75), steps=8))
    seen, ends = [], []
    record = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: seen.append(weights(model)),
        on_epoch_end=lambda epoch, logs: ends.append(weights(model)),
    )
    Loop(model).run(lambda epoch: batches(), epochs=2, callbacks=[swap_averages(in_model=False), record])
    for end, steps in zip(ends, (4, 8), strict=True):
        for weight, values in zip(end, zip(*seen[:steps], strict=True), strict=True):
            expected = values[0]
            for step, value in enumerate(values[1:], 1):
                decay = min(0.75, (1 + step) / (10 + step))
                expected = decay * expected + (1 - decay) * value
            np.testing.assert_allclose(weight, expected, atol=1e-6)
    assert not np.allclose(ends[1][0], seen[7][0], atol=1e-4)


@pytest.mark.slow
def test_the_loss_with_teachers_is_the_mean_of_both_cross_entropies(monkeypatch):
    monkeypatch.setattr(tf, "function", lambda step, **_: step)
    teachers = [make_captioner() for _ in range(2)]
    for scale, teacher in enumerate(teachers, 1):
        teacher.set_weights([scale * 3 * weight for weight in teacher.get_weights()])
    student = make_captioner()
    student.teacher_weight = 0.7
    inputs, targets = next(iter(batches()))
    taught_inputs = {
        **inputs,
        "teacher0_features": inputs["features"],
        "teacher1_features": -inputs["features"],
    }
    loss = Loop(student, teachers=teachers)._replica_step(taught_inputs, targets)["loss"]

    def log_probabilities(model, sign):
        logits = model({**inputs, "features": sign * inputs["features"]}).numpy()
        return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))

    theirs = sum(np.exp(log_probabilities(t, sign)) for t, sign in zip(teachers, (1, -1), strict=True)) / 2
    words = targets.numpy() != 0
    own = log_probabilities(make_captioner(), 1)
    hard = -np.take_along_axis(own, targets.numpy()[..., None], axis=-1)[..., 0][words].mean()
    soft = -(theirs * own).sum(axis=-1)[words].mean()
    assert float(loss) == pytest.approx(0.3 * hard + 0.7 * soft, rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("sparsity", [None, 0.5])
def test_the_loop_and_fit_take_the_same_steps(sparsity, request):
    if sparsity is not None:  # with gates, compiling takes longer; XLA's steps are compared below
        request.getfixturevalue("eager")
    # In `fit`, Adam squares each occurrence of a word by itself, unless the embeddings have gates.
    make = keras.optimizers.SGD if sparsity is None else keras.optimizers.Adam
    ours, theirs = make_captioner(make(0.01)), make_captioner(make(0.01))
    for model in (ours, theirs):
        if sparsity is not None:
            prune(model, Gradual(sparsity, 8))
    recorder = Recorder()
    Loop(ours).run(batches_of, epochs=2, callbacks=[recorder])
    history = theirs.fit(batches(), epochs=2, shuffle=False, verbose=0).history
    for our_weight, their_weight in zip(weights(ours), weights(theirs), strict=True):
        np.testing.assert_allclose(our_weight, their_weight, atol=2e-6)
    for name in history:
        np.testing.assert_allclose([row[name] for row in recorder.epochs], history[name], rtol=1e-5)
    assert "sparsity" in history or sparsity is None


@pytest.mark.slow
def test_epoch_logs_contain_mean_loss_time_and_data_wait():
    recorder = Recorder()
    Loop(make_captioner()).run(batches_of, epochs=3, first_epoch=1, callbacks=[recorder])
    assert len(recorder.losses) == 8 and len(recorder.epochs) == 2
    first = recorder.epochs[0]
    assert first["loss"] == pytest.approx(np.mean(recorder.losses[:4]))
    assert 0 <= first["data_wait"] <= 1 and first["seconds"] > 0


@pytest.mark.slow
def test_all_occurrences_of_a_word_are_one_gradient():
    keras.utils.set_random_seed(7)
    model = Transformer(
        WORDS, size=8, hidden_size=8, layers=1, heads=2, feature_size=8, max_length=LENGTH, dropout=0
    )
    model.compile(keras.optimizers.Adam(0.01, beta_1=0.5, beta_2=0.5))
    Loop(model)._step(next(iter(batches(count=1))))
    slots = {variable.path.split("/")[-1]: np.array(variable) for variable in model.optimizer.variables}
    (name,) = [name for name in slots if name.endswith("embeddings_momentum")]
    gradient = slots[name] / 0.5
    np.testing.assert_allclose(slots[name.replace("momentum", "velocity")], 0.5 * gradient**2, rtol=1e-4)


@pytest.mark.slow
def test_two_devices_take_the_same_steps_as_one():
    results = []
    for strategy in (tf.distribute.get_strategy(), two_devices()):
        with strategy.scope():
            settings = Training(learning_rate=0.01, clip_norm=0.5, warmup_steps=0)
            model = make_captioner(make_optimizer(settings, 8))
        recorder = Recorder()
        Loop(model, strategy=strategy).run(batches_of, epochs=2, callbacks=[recorder])
        results.append((recorder.losses, weights(model)))
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-4)
    for single_weight, mirrored_weight in zip(results[0][1], results[1][1], strict=True):
        np.testing.assert_allclose(single_weight, mirrored_weight, atol=2e-5)


@pytest.mark.slow
def test_dropout_runs_on_two_devices():
    strategy = two_devices()
    with strategy.scope():
        model = make_captioner(dropout=0.5)
    Loop(model, strategy=strategy).run(batches_of, epochs=1)


class LastLogs(keras.callbacks.TensorBoard):
    """Records the logs that Keras's callbacks get after a step."""

    def __init__(self):
        keras.callbacks.Callback.__init__(self)
        self.seen = []

    set_model = set_params = on_train_begin = on_train_batch_begin = on_train_end = lambda *_, **__: None
    on_epoch_begin = on_epoch_end = lambda *_, **__: None

    def on_train_batch_end(self, batch, logs=None):
        self.seen.append(logs)


def quick_loop(losses):
    """A loop whose steps have these losses and do nothing else."""
    loop, remaining_losses = Loop(make_captioner()), iter(losses)
    loop.train_step = lambda batch: {
        "loss": tf.constant(next(remaining_losses)),
        "sparsity": tf.constant(0.5),
    }
    return loop


def test_between_reports_logs_stay_on_the_device(monkeypatch):
    losses, fetches, fetch = [float(step) for step in range(60)], [], StepLogs.fetch
    monkeypatch.setattr(StepLogs, "fetch", lambda logs: fetches.append(len(logs)) or fetch(logs))
    shown, ends = LastLogs(), Recorder()
    record_end = keras.callbacks.Callback()
    record_end.on_epoch_end = ends.on_epoch_end
    quick_loop(losses).run(lambda epoch: tf.data.Dataset.range(60), epochs=1, callbacks=[shown, record_end])
    assert fetches == [1, STEPS_PER_REPORT, 2 * STEPS_PER_REPORT, 60]
    assert [step for step, logs in enumerate(shown.seen) if logs] == [0, 24, 49]
    assert shown.seen[24] == {"loss": 24.0, "sparsity": 0.5}
    assert ends.epochs[0]["loss"] == pytest.approx(np.mean(losses)) and ends.epochs[0]["sparsity"] == 0.5
    every = Recorder()
    quick_loop(losses).run(lambda epoch: tf.data.Dataset.range(60), epochs=1, callbacks=[every])
    assert every.losses == losses


def test_a_loss_that_is_not_finite_between_reports_is_named_with_its_step():
    losses = [1.0] * 29 + [float("inf")] + [float("nan")] * 30
    with pytest.raises(InputError, match="became inf at step 30 of epoch 3: lower"):
        quick_loop(losses).run(lambda epoch: tf.data.Dataset.range(60), epochs=3, first_epoch=2)


@pytest.mark.slow
def test_a_loss_that_is_not_finite_is_an_error():
    model = make_captioner()
    model.output_layer.bias.assign(np.full(WORDS, np.nan))
    with pytest.raises(InputError, match="step 1 of epoch 1: lower"):
        Loop(model).run(batches_of, epochs=1)


def test_an_epoch_without_batches_is_an_error():
    with pytest.raises(InputError, match="fewer training captions than"):
        Loop(make_captioner()).run(lambda epoch: batches(count=1, size=3).take(0), epochs=1)


@pytest.mark.parametrize(("warmup", "rates"), [(0, [0.1, 0.055, 0.01]), (10, [0.0, 0.1, 0.055, 0.01])])
def test_the_cosine_schedule_warms_up_and_ends_at_the_final_rate(warmup, rates):
    settings = Training(learning_rate=0.1, final_learning_rate=0.01, warmup_steps=warmup)
    schedule = make_optimizer(settings, 100 + warmup)._learning_rate
    steps = ([0] if warmup else []) + [warmup, 50 + warmup, 100 + warmup]
    assert [float(schedule(step)) for step in steps] == pytest.approx(rates, abs=1e-6)


@pytest.mark.parametrize("step", [1, 500, 10_000, 40_000])
def test_noam_is_the_schedule_of_the_transformer_paper(step):
    expected = 512**-0.5 * min(step**-0.5, step * 10_000**-1.5)
    settings = Training(
        learning_rate=(512 * 10_000) ** -0.5,
        schedule="noam",
        warmup_steps=10_000,
        adam_beta_2=0.98,
        adam_epsilon=1e-9,
    )
    optimizer = make_optimizer(settings, 1)
    optimizer.iterations.assign(step - 1)
    assert float(optimizer.learning_rate) == pytest.approx(expected, rel=1e-5)
    assert (optimizer.beta_2, optimizer.epsilon) == (0.98, 1e-9)


def test_the_encoder_has_its_own_learning_rate():
    settings = Training(learning_rate=0.1, encoder_learning_rate=0.01, clip_norm=None, schedule="constant")
    encoder, decoder = keras.Variable([1.0, 2.0]), keras.Variable([1.0, 2.0])
    optimizer = make_optimizer(settings, 10, encoder_variables=[encoder])
    expected = keras.Variable([1.0, 2.0]), keras.Variable([1.0, 2.0])
    others = keras.optimizers.Adam(0.01), keras.optimizers.Adam(0.1)
    for gradient in (tf.constant([1.0, -3.0]), tf.constant([0.1, 2.0])):
        optimizer.apply([gradient, gradient], [encoder, decoder])
        for other, variable in zip(others, expected, strict=True):
            other.apply([gradient], [variable])
    np.testing.assert_allclose(encoder, expected[0], rtol=1e-6)
    np.testing.assert_allclose(decoder, expected[1], rtol=1e-6)


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


def word_batches():
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


def assert_equal_training(training, expected):
    """`training` and `expected` are what `trained` returns."""
    for logs, expected_logs in zip(training[0], expected[0], strict=True):
        assert logs == pytest.approx(expected_logs, rel=1e-6, abs=1e-6)
    for value, expected_value in zip(training[1], expected[1], strict=True):
        np.testing.assert_allclose(value, expected_value, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("method", [None, *METHODS])
def test_steps_of_all_methods_are_those_without_xla(method):
    training, expected = (trained(network(method), word_batches(), jit_compile=jit) for jit in (True, False))
    assert_equal_training(training, expected)
    assert method is None or training[0][-1]["sparsity"] == pytest.approx(0.5, abs=0.03)


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
    training, expected = (
        trained(taught_captioner(), [batch] * 2, teachers=[teacher], jit_compile=jit) for jit in (True, False)
    )
    assert_equal_training(training, expected)


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
        trained(uncompilable(), word_batches(), jit_compile=True)


@pytest.mark.slow
def test_auto_continues_without_xla_if_it_fails(gpu):
    with pytest.warns(UserWarning, match=r"XLA failed \(.*\): the training continues without it"):
        training = trained(uncompilable(), word_batches(), jit_compile="auto")
    assert_equal_training(training, trained(uncompilable(), word_batches()))


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
