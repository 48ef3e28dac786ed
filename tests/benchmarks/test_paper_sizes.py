"""Captioners with the papers' sizes: numbers of parameters, and inputs."""

import keras
import numpy as np
import pytest

from benchmarks import paper_sizes
from benchmarks.paper_sizes import PAPER_CAPTIONERS

PARAMETERS = {"up_down": 53_149_537, "ort": 55_442_752, "acort": 14_979_347}


@pytest.mark.slow
@pytest.mark.parametrize("name", PARAMETERS)
def test_sizes_are_those_of_the_papers(name):
    with keras.StatelessScope():  # shapes without values
        assert PAPER_CAPTIONERS[name].make(20).count_params() == PARAMETERS[name]


@pytest.mark.parametrize("name", ["soft_attention_of_map", "acort"])
def test_logits_are_computed_from_the_listed_inputs(name):
    paper = PAPER_CAPTIONERS[name]
    captioner = paper.make(6)
    inputs = {key: np.ones((2, *shape), "float32") for key, shape in paper.inputs.items()}
    logits = captioner({**inputs, "tokens": np.ones((2, 6), "int32")})
    assert logits.shape == (2, 6, paper.vocabulary_size)


@pytest.mark.slow
def test_the_size_of_rtic_is_that_of_table_3():
    ((_, parameters),) = paper_sizes.sizes(["rtic"])
    assert paper_sizes.megabytes(parameters) == pytest.approx(346.5, rel=0.01)


@pytest.mark.slow
def test_the_size_of_the_pruned_rtic_is_that_of_table_3():
    _, parameters = paper_sizes.slimmed_rtic()
    assert paper_sizes.megabytes(parameters) == pytest.approx(240.0, rel=0.01)
