"""Pruned models on disk: read and trained further by a fresh process; stripped ones without this package."""

import json
import subprocess
import sys
import zipfile

import keras
import numpy as np
import pytest

from tfsparsecap import Supermask, SupermaskLoss, prune, strip_pruning
from tfsparsecap.gates import gates
from tfsparsecap.models import SoftAttention

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(16, 3, 8)).astype("float32")
Y = RANDOM.integers(0, 3, 16)
LOSS = "sparse_categorical_crossentropy"


@keras.saving.register_keras_serializable("tests")
class Unbuilt(keras.Model):
    """Has weights only after a call, as most subclassed models."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.norm, self.head = keras.layers.LayerNormalization(), keras.layers.Dense(3, "softmax")

    def call(self, x):
        return self.head(self.norm(keras.ops.mean(x, axis=1)))


def functional():
    inputs = keras.Input((3, 8))
    x = keras.layers.MultiHeadAttention(2, 4)(inputs, inputs)
    x = keras.layers.Bidirectional(keras.layers.LSTM(4))(keras.layers.BatchNormalization()(x))
    return keras.Model(inputs, keras.layers.Dense(3, "softmax")(x))


def sequential():
    return keras.Sequential(
        [
            keras.Input((3, 8)),
            keras.layers.Flatten(),
            keras.layers.Dense(6, "relu"),
            keras.layers.Dense(3, "softmax"),
        ]
    )


def subclassed():
    model = Unbuilt()
    model(X)
    return model


def trained(model, method, **options):
    prune(model, method, **options)
    model.compile(keras.optimizers.AdamW(0.01), LOSS, metrics=["accuracy"])
    model.fit(X, Y, batch_size=4, epochs=2, verbose=0)
    return model


def in_a_fresh_process(program, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)], capture_output=True, text=True, timeout=300
    )
    assert done.stdout.strip().endswith("done"), done.stderr[-3000:]


@pytest.mark.parametrize(
    ("make", "method"),
    [
        pytest.param(functional, lambda: Supermask(0.5, 20, block_shape=(2, 1)), marks=pytest.mark.slow),
        (sequential, lambda: SupermaskLoss(0.5, 20, land_at=0.7)),
        (subclassed, lambda: Supermask(0.5, 20)),
    ],
)
@pytest.mark.filterwarnings("ignore:.*does not divide", "ignore:.*is reached only")
def test_saved_and_loaded_it_goes_on_as_if_nothing_had_happened(tmp_path, make, method):
    method = method()
    model = trained(make(), method)
    model.save(tmp_path / "pruned.keras")
    again = keras.models.load_model(tmp_path / "pruned.keras")
    assert again.pruning.get_config() == method.get_config()
    assert again.pruning.left_alone == method.left_alone
    assert [gate.block for gate in gates(again)] == [gate.block for gate in gates(model)]
    assert int(again.pruning.steps_done) == 8
    for mine, theirs in zip(model.weights, again.weights, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    for which in (model, again):
        for _ in range(12):
            which.train_on_batch(X, Y)
    for mine, theirs in zip(model.weights, again.weights, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-5)
    assert float(again.pruning.current_sparsity()) == pytest.approx(0.5, abs=0.05)


def test_skipped_layers_stay_stock(tmp_path):
    model = sequential()
    trained(model, Supermask(0.5, total_steps=20), skip=model.layers[-1].name)
    model.save(tmp_path / "pruned.keras")
    again = keras.models.load_model(tmp_path / "pruned.keras")
    assert type(again.layers[-1]) is keras.layers.Dense
    assert len(gates(again)) == 1


def test_weights_alone_are_saved_raw(tmp_path):
    model = trained(sequential(), Supermask(0.5, total_steps=8))
    model.save_weights(tmp_path / "only.weights.h5")
    again = prune(sequential(), Supermask(0.5, total_steps=8))
    again.load_weights(tmp_path / "only.weights.h5")
    for mine, theirs in zip(model.weights, again.weights, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert np.count_nonzero(again.layers[1].stored_weight("kernel")) == 24 * 6


LOAD_PRUNED = """
import sys
import keras, numpy as np
import tfsparsecap
folder = sys.argv[1]
x, y = np.load(folder + "/x.npy"), np.load(folder + "/y.npy")
model = keras.models.load_model(folder + "/functional.keras")
np.testing.assert_allclose(model.predict(x, verbose=0), np.load(folder + "/functional.npy"), atol=1e-5)
assert int(model.pruning.steps_done) == 8
history = model.fit(x, y, batch_size=4, epochs=3, verbose=0).history
assert abs(history["sparsity"][-1] - 0.5) < 0.01, history
captioner = keras.models.load_model(folder + "/captioner.keras")
inputs = {"features": x, "tokens": np.ones((16, 4), "int32")}
np.testing.assert_allclose(captioner(inputs), np.load(folder + "/captioner.npy"), atol=1e-5)
assert abs(float(captioner.pruning.current_sparsity()) - 0.5) < 0.01
tfsparsecap.strip_pruning(captioner)
np.testing.assert_allclose(captioner(inputs), np.load(folder + "/captioner.npy"), atol=1e-5)
print("done")
"""

LOAD_STRIPPED = """
import sys
import keras, numpy as np
folder = sys.argv[1]
model = keras.models.load_model(folder + "/stripped.keras")
np.testing.assert_allclose(
    model.predict(np.load(folder + "/x.npy"), verbose=0), np.load(folder + "/functional.npy"), atol=1e-5
)
assert not [name for name in sys.modules if name.startswith("tfsparsecap")]
print("done")
"""


@pytest.mark.slow
def test_a_fresh_process_needs_only_the_import_and_for_stripped_models_not_even_that(tmp_path):
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", Y)
    model = trained(functional(), Supermask(0.5, total_steps=20))
    model.save(tmp_path / "functional.keras")
    np.save(tmp_path / "functional.npy", model.predict(X, verbose=0))

    captioner = SoftAttention(20, embedding_size=6, rnn_size=8, attention_size=4, feature_size=8)
    prune(captioner, Supermask(0.5, total_steps=4))
    captioner.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    inputs = {"features": X, "tokens": np.ones((16, 4), "int32")}
    captioner.fit(inputs, np.ones((16, 4), "int32"), batch_size=4, epochs=1, verbose=0)
    captioner.save(tmp_path / "captioner.keras")
    np.save(tmp_path / "captioner.npy", captioner(inputs))
    in_a_fresh_process(LOAD_PRUNED, tmp_path)

    strip_pruning(model).save(tmp_path / "stripped.keras")
    with zipfile.ZipFile(tmp_path / "stripped.keras") as archive:
        for name in ("config.json", "metadata.json"):
            assert "tfsparsecap" not in archive.read(name).decode()
        assert json.loads(archive.read("config.json"))["class_name"] == "Functional"
    in_a_fresh_process(LOAD_STRIPPED, tmp_path)


def test_a_stripped_captioner_is_a_captioner(tmp_path):
    captioner = SoftAttention(20, embedding_size=6, rnn_size=8, attention_size=4, feature_size=8)
    weights = len(captioner.weights)
    prune(captioner, "supermask", sparsity=0.5, total_steps=4)
    strip_pruning(captioner).save(tmp_path / "captioner.keras")
    again = keras.models.load_model(tmp_path / "captioner.keras")
    assert type(again) is SoftAttention
    assert len(again.weights) == weights
