"""Figures of a report, against weights and densities computed by hand."""

import numpy as np
import pytest

import tfsparsecap as sc
from tfsparsecap.model_summary.nonzeros import weight_counts
from tfsparsecap.reports.figures import (
    NonzeroWeights,
    densities,
    nonzero_weights,
    not_logged,
    progression,
    weight_distribution,
)


def test_nonzero_weights_of_kernels_are_collected():
    captioner = sc.SoftAttention(
        9, cell="gru", embedding_size=3, rnn_size=5, attention_size=4, feature_size=6
    )
    for layer in (captioner.output_layer, captioner.attention_query):
        values = np.arange(layer.kernel.shape[0] * layer.kernel.shape[1], dtype="float32") % 3
        layer.kernel.assign(values.reshape(layer.kernel.shape))
        layer.bias.assign(np.full(layer.bias.shape, 77.0))
    found = nonzero_weights(captioner)
    counts = weight_counts(captioner)
    assert (found.values.size, found.total) == (counts["nonzero_weights"], counts["weights"])
    assert found.values.size < found.total and found.values.max() == 2 and np.all(found.values)


def test_densities_have_an_area_of_one():
    """The density of a uniform distribution on [-1, 1] is 1/2, of one on [-2, 2] 1/4."""
    rng = np.random.default_rng(0)
    narrow, broad = (rng.uniform(-far, far, 400_000).astype("float32") for far in (1, 2))
    edges, curves = densities(
        {"narrow": NonzeroWeights(narrow, 10**6), "broad": NonzeroWeights(broad, 10**6)}
    )
    middles, width = (edges[1:] + edges[:-1]) / 2, edges[1] - edges[0]
    assert edges[0] == -edges[-1] and edges[-1] == pytest.approx(2, rel=0.01)
    assert curves["narrow"][np.abs(middles) < 0.95].mean() == pytest.approx(0.5, rel=0.01)
    assert curves["narrow"][np.abs(middles) > 1.05].max() == 0
    assert curves["broad"][np.abs(middles) < 1.9].mean() == pytest.approx(0.25, rel=0.01)
    assert curves["narrow"].sum() * width == pytest.approx(1)
    # A few weights are outside the edges.
    assert 0.99 < curves["broad"].sum() * width < 1


def test_runs_without_nonzero_weights_are_not_drawn():
    nothing = NonzeroWeights(np.zeros(0, "float32"), 10)
    assert weight_distribution({"empty": nothing}) is None
    figure = weight_distribution(
        {"empty": nothing, "one": NonzeroWeights(np.array([0.5, -0.25], "float32"), 4)}
    )
    assert [row[0] for row in figure.table.rows] == ["one"]
    assert figure.table.rows[0][1] == "2 of 4"


def test_progression_needs_a_history():
    assert progression([]) is None
    assert not_logged([])[0] == "training loss"
