"""Figures of a report: against weights and densities computed by hand."""

import numpy as np
import pytest

import tfsparsecap as sc
from tfsparsecap.reports import figures as report_figures
from tfsparsecap.reports.figures import Remaining, density, density_figure, remaining_weights
from tfsparsecap.summary.nonzeros import weight_counts


def test_remaining_weights_are_the_non_zero_ones_of_kernels():
    captioner = sc.SoftAttention(
        9, cell="gru", embedding_size=3, rnn_size=5, attention_size=4, feature_size=6
    )
    for layer in (captioner.output_layer, captioner.attention_query):
        values = np.arange(layer.kernel.shape[0] * layer.kernel.shape[1], dtype="float32") % 3
        layer.kernel.assign(values.reshape(layer.kernel.shape))
        layer.bias.assign(np.full(layer.bias.shape, 77.0))
    found = remaining_weights(captioner)
    counts = weight_counts(captioner)
    assert (found.values.size, found.weights) == (counts["nonzero_weights"], counts["weights"])
    assert found.values.size < found.weights and found.values.max() == 2 and np.all(found.values)


def test_each_density_has_an_area_of_one_over_all_its_weights():
    """Of a uniform distribution on [-1, 1] the density is 1/2, of one on [-2, 2] it is 1/4."""
    rng = np.random.default_rng(0)
    narrow, broad = (rng.uniform(-far, far, 400_000).astype("float32") for far in (1, 2))
    edges, curves = density({"narrow": Remaining(narrow, 10**6), "broad": Remaining(broad, 10**6)})
    middles, width = (edges[1:] + edges[:-1]) / 2, edges[1] - edges[0]
    assert edges[0] == -edges[-1] and edges[-1] == pytest.approx(2, rel=0.01)
    assert curves["narrow"][np.abs(middles) < 0.95].mean() == pytest.approx(0.5, rel=0.01)
    assert curves["narrow"][np.abs(middles) > 1.05].max() == 0
    assert curves["broad"][np.abs(middles) < 1.9].mean() == pytest.approx(0.25, rel=0.01)
    assert curves["narrow"].sum() * width == pytest.approx(1)
    # A few lie outside.
    assert 0.99 < curves["broad"].sum() * width < 1


def test_a_run_without_a_weight_left_is_not_drawn():
    nothing = Remaining(np.zeros(0, "float32"), 10)
    assert density_figure({"empty": nothing}) is None
    figure = density_figure({"empty": nothing, "one": Remaining(np.array([0.5, -0.25], "float32"), 4)})
    assert [name for name, _ in figure.table.rows] == ["one"]
    assert figure.table.rows[0][1][0].text == "2 of 4" and "empty" not in figure.alt


def test_without_any_history_there_is_no_progression():
    assert report_figures.progression([]) is None
    assert report_figures.not_logged([])[0] == "training loss"
