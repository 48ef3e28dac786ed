"""What cannot be exported is reported before the training."""

import keras
import pytest
from keras import layers, ops
from tfsparsecap_export import check_exportable

import tfsparsecap as sc
from tfsparsecap.errors import InputError


class Fourier(layers.Layer):
    def call(self, x):
        return ops.fft((x, ops.zeros_like(x)))[0]


class Noise(layers.Layer):
    def call(self, x):
        return x + keras.random.normal(ops.shape(x))


class Branches(keras.Model):
    def __init__(self):
        super().__init__(name="branches")
        self.dense = layers.Dense(2)

    def call(self, x):
        return self.dense(x) if float(ops.sum(x)) > 0 else -self.dense(x)


def around(layer, shape=(8,), dtype="float32"):
    """A model with `layer` between its input and a dense layer."""
    return keras.Sequential([keras.Input(shape, dtype=dtype), layer, layers.Dense(2)], name="net")


@pytest.mark.slow
def test_a_model_that_can_be_exported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = check_exportable(around(layers.Dense(16, "swish")))
    assert result.error < 1e-4 and result.samples > 1
    assert not list(tmp_path.iterdir())


def branches():
    model = Branches()
    model(ops.ones((2, 8)))
    return model


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(
            lambda: around(Fourier(name="fourier")),
            r"tf\.FFT: replace fourier of net",
            marks=pytest.mark.slow,
        ),
        (lambda: around(Noise()), "random at inference"),
        (lambda: around(layers.IntegerLookup(vocabulary=[1], name="ids"), dtype="int32"), "table in ids"),
        (branches, "branches runs Python code that depends on the values of tensors"),
    ],
    ids=["fourier", "noise", "lookup", "branches"],
)
def test_what_is_not_supported_is_named(make, message):
    with pytest.raises(InputError, match=message):
        check_exportable(make(), keras.Input((8,)) if make is branches else None)


def test_a_pruned_model_is_not_checked():
    model = sc.prune(around(layers.Dense(16)), "supermask", sparsity=0.5, total_steps=2)
    with pytest.raises(InputError, match=r"net has gates already: check a model before sc\.prune"):
        check_exportable(model)
