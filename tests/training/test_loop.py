"""The loop against Keras's own numbers, on one device and on two."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.errors import InputError
from tfsparsecap.models.soft_attention import SoftAttention
from tfsparsecap.training.loop import Loop, make_optimizer, masked_cross_entropy

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


def captioner(dropout=0.0):
    keras.utils.set_random_seed(7)
    return SoftAttention(
        WORDS, embedding_size=6, rnn_size=8, attention_size=5, feature_size=8, dropout=dropout
    )


def weights(model):
    return [np.array(variable) for variable in model.trainable_variables]


def everything(epoch, context=None):
    """All batches; with a context the parts of each batch one after the other."""
    return batches() if context is None else batches().rebatch(4 // context.num_replicas_in_sync)


class Recorder(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.losses, self.epochs = [], []

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(logs["loss"])

    def on_epoch_end(self, epoch, logs=None):
        self.epochs.append(dict(logs))


def test_masked_cross_entropy_equals_keras_over_the_words_alone():
    random = np.random.default_rng(3)
    logits = random.normal(size=(2, 4, WORDS)).astype(np.float32)
    targets = np.array([[3, 4, 2, 0], [5, 2, 0, 0]], np.int32)
    real = targets != 0
    for smoothing in (0.0, 0.1):
        one_hot = keras.utils.to_categorical(targets[real], WORDS)
        expected = keras.losses.CategoricalCrossentropy(
            from_logits=True, label_smoothing=smoothing, reduction="sum"
        )(one_hot, logits[real])
        found = masked_cross_entropy(logits, targets, 0, smoothing)
        assert float(found) == pytest.approx(float(expected), rel=1e-5)


def test_one_epoch_equals_the_same_steps_by_keras_fit():
    ours, theirs = captioner(), captioner()
    Loop(ours, keras.optimizers.Adam(0.01)).run(everything, epochs=2)

    theirs.compile(
        keras.optimizers.Adam(0.01),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum"),
    )
    # Keras's weights for each word: one over the number of words in its batch.
    weighted = batches().map(
        lambda x, y: (x, y, tf.cast(y != 0, tf.float32) / tf.reduce_sum(tf.cast(y != 0, tf.float32)))
    )
    theirs.fit(weighted, epochs=2, shuffle=False, verbose=0)
    for one, other in zip(weights(ours), weights(theirs), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-6)


def test_epoch_logs_hold_mean_loss_time_and_share_of_waiting():
    recorder = Recorder()
    Loop(captioner(), keras.optimizers.Adam(0.01)).run(
        everything, epochs=3, first_epoch=1, callbacks=[recorder]
    )
    assert len(recorder.losses) == 8 and len(recorder.epochs) == 2
    first = recorder.epochs[0]
    assert first["loss"] == pytest.approx(np.mean(recorder.losses[:4]))
    assert 0 <= first["data_wait"] <= 1 and first["seconds"] > 0


def test_two_devices_do_the_same_steps_as_one():
    devices = tf.config.list_logical_devices("CPU")
    if len(devices) < 2:
        pytest.skip("needs two logical CPU devices, which tests/training/conftest.py makes")
    results = []
    for strategy in (
        tf.distribute.get_strategy(),
        tf.distribute.MirroredStrategy([d.name for d in devices[:2]]),
    ):
        with strategy.scope():
            model = captioner()
            optimizer = make_optimizer(
                8, learning_rate=0.01, clip_norm=0.5, replicas=strategy.num_replicas_in_sync
            )
        recorder = Recorder()
        Loop(model, optimizer, strategy=strategy).run(everything, epochs=2, callbacks=[recorder])
        results.append((recorder.losses, weights(model)))
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-4)
    for one, other in zip(results[0][1], results[1][1], strict=True):
        np.testing.assert_allclose(one, other, atol=2e-5)


def test_dropout_runs_on_two_devices():
    devices = tf.config.list_logical_devices("CPU")
    if len(devices) < 2:
        pytest.skip("needs two logical CPU devices, which tests/training/conftest.py makes")
    strategy = tf.distribute.MirroredStrategy([d.name for d in devices[:2]])
    with strategy.scope():
        model = captioner(dropout=0.5)
        optimizer = keras.optimizers.Adam(0.01)
    Loop(model, optimizer, strategy=strategy).run(everything, epochs=1)


def test_cosine_schedule_ends_at_the_final_rate_and_two_limits_are_refused():
    optimizer = make_optimizer(10, learning_rate=0.1, schedule="cosine", final_learning_rate=0.01)
    schedule = optimizer._learning_rate
    assert float(schedule(0)) == pytest.approx(0.1) and float(schedule(10)) == pytest.approx(0.01)
    assert float(schedule(5)) == pytest.approx(0.055)
    with pytest.raises(InputError, match="clip_norm and training"):
        make_optimizer(10, learning_rate=0.1, clip_norm=1.0, clip_value=1.0)


def test_a_loss_that_is_no_number_stops_with_a_sentence():
    model = captioner()
    model.output_layer.bias.assign(np.full(WORDS, np.nan))
    with pytest.raises(InputError, match="step 1 of epoch 1: lower"):
        Loop(model, keras.optimizers.Adam()).run(everything, epochs=1)


def test_no_batch_at_all_is_named():
    with pytest.raises(InputError, match="fewer training captions than"):
        Loop(captioner(), keras.optimizers.Adam()).run(
            lambda epoch: batches(count=1, size=3).take(0), epochs=1
        )


def test_a_cosine_schedule_rises_to_its_rate_first_where_it_is_told_to():
    optimizer = make_optimizer(
        110, learning_rate=0.1, schedule="cosine", final_learning_rate=0.01, warmup_steps=10
    )
    rates = [float(optimizer._learning_rate(step)) for step in (0, 5, 10, 60, 110)]
    assert rates == pytest.approx([0, 0.05, 0.1, 0.055, 0.01], abs=1e-6)


@pytest.mark.parametrize("step", [1, 500, 10_000, 40_000])
def test_noam_is_the_schedule_of_the_transformer_paper(step):
    expected = 512**-0.5 * min(step**-0.5, step * 10_000**-1.5)
    optimizer = make_optimizer(
        1,
        learning_rate=(512 * 10_000) ** -0.5,
        schedule="noam",
        warmup_steps=10_000,
        beta_2=0.98,
        epsilon=1e-9,
    )
    optimizer.iterations.assign(step - 1)
    assert float(optimizer.learning_rate) == pytest.approx(expected, rel=1e-5)
    assert (optimizer.beta_2, optimizer.epsilon) == (0.98, 1e-9)
