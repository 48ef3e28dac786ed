"""Arguments of sc.slim and sc.Slim that are refused, or made fit."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import tfsparsecap as sc
from tfsparsecap.errors import InputError
from tfsparsecap.slimming.options import Options


@pytest.fixture
def model():
    return keras.Sequential([keras.Input((4,)), layers.Dense(32, "relu"), layers.Dense(2)], name="small")


BAD = [
    ({"budget": "x"}, "there is no budget 'x'"),
    ({"criterion": "l3"}, "there is no importance criterion 'l3'"),
    ({"multiple": 0}, "multiple is 0"),
    ({"keep": 2}, "keep is 2"),
    ({"skip": 5}, "skip contains 5: give layers"),
    ({"skip": ["a", None]}, "skip contains None: give layers"),
    ({"latency": 3, "budget": "latency"}, "latency is 3: give a function"),
    ({"latency": len, "budget": "flops"}, 'latency= does nothing with the budget "flops"'),
    ({"samples": "abc"}, "samples is 'abc': give a list of batches"),
    ({"samples": 5}, "samples is 5: give a list of batches"),
    ({"samples": itertools.repeat(np.ones((1, 4)))}, "samples gives more than 256 batches"),
    (
        {"samples": tf.data.Dataset.from_tensors(np.ones((1, 4))).repeat()},
        "samples is a data set without end",
    ),
]


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_wrong_options_are_refused_by_all_functions(model, arguments, message):
    for call in (lambda **options: sc.slim(model, **options), sc.Slim):
        with pytest.raises(InputError, match=message):
            call(**arguments)


@pytest.mark.parametrize(
    ("name", "value"),
    [("budget", "flops"), ("criterion", "l1"), ("keep", 0.5), ("samples", [np.ones((1, 4), "float32")])],
)
def test_options_of_a_ratio_are_refused_without_one(model, name, value):
    with pytest.raises(InputError, match=rf"{name}= does nothing with ratio=None"):
        sc.slim(model, None, **{name: value})


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return np.full((2, 4), index, "float32"), np.zeros(2)


def test_generators_and_keras_data_sets_of_samples_are_read_more_than_once():
    for samples in ((letter for letter in "abc"), Batches()):
        kept = Options(samples=samples).samples
        assert len(list(kept)) == len(list(kept)) > 1


@pytest.mark.parametrize("value", [0, "fast"])
def test_a_latency_that_is_no_positive_number_is_refused(model, value):
    with pytest.raises(InputError, match=r"the result of latency= is .*: give a number above 0"):
        sc.slim(model, 0.5, budget="latency", latency=lambda network: value)
