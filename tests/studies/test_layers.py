"""Sparsities of layers, against NumPy's counts and the published tables."""

import json
from xml.etree import ElementTree

import keras
import numpy as np
import pytest
from PIL import Image

import tfsparsecap as sc
from tfsparsecap.errors import InputError
from tfsparsecap.inference.finished_run import FinishedRun
from tfsparsecap.studies import layers as study_layers
from tfsparsecap.studies.layers import (
    Layer,
    by_published_name,
    compare,
    describe,
    layerwise,
    main,
    order,
    plot_layerwise,
)
from tfsparsecap.summary.nonzeros import weight_counts

LSTM = "layerwise__Layer-wise_Sparsities_of_Soft-Attention_LSTM_MS-COCO_.tsv"
INCEPTION = "layerwise__Layer-wise_Sparsities_of_Soft-Attention_Inception-V1_MS-COCO_.tsv"
MOBILENET = "layerwise__Layer-wise_Sparsities_of_Soft-Attention_MobileNet-V1_MS-COCO_.tsv"
TABLE = "Layer\tProposed\tGradual\nembedding_map/mask\t0.99\t0.975\nvalue_layer/kernel/mask\t0.993\t0.974\n"


@pytest.fixture(scope="module")
def curves(shared):
    return shared / "fixtures" / "published_curves"


def zeroed(model, seed=0):
    """Sets random weights of all variables to zero and returns the share of zeros of each, by path."""
    random, counted = np.random.default_rng(seed), {}
    for variable in model.weights:
        keep = random.random(variable.shape) < random.random()
        variable.assign(np.where(keep, 1 + random.random(variable.shape), 0))
        counted[variable.path] = float(np.mean(~keep))
    return counted


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_kernels_and_tables_are_counted_as_numpy_counts_and_biases_are_not(cell):
    sizes = {"embedding_size": 5, "rnn_size": 6, "attention_size": 4, "feature_size": 7}
    model = sc.SoftAttention(11, cell=cell, name="captioner", **sizes)
    counted = zeroed(model)
    layers = layerwise(model)
    names = ["embedding/embeddings", "initial_hidden/kernel", "initial_carry/kernel"]
    names += ["attention_features/kernel", "attention_query/kernel", "attention_score/kernel"]
    names += [f"{cell}/kernel", f"{cell}/recurrent_kernel", "output/kernel"]
    assert [layer.name for layer in layers] == [n for n in names if cell == "lstm" or "carry" not in n]
    for layer in layers:
        assert layer.sparsity == pytest.approx(counted[f"captioner/{layer.name}"])
    assert layers[0].weights == 55 and layers[-1].weights == 66


def test_all_layers_together_have_the_runs_counts(tiny_run):
    layers = layerwise(tiny_run)
    captioner = FinishedRun.load(tiny_run).captioner
    counts = weight_counts(captioner)
    assert sum(layer.weights for layer in layers) == counts["weights"]
    left = sum(layer.weights * (1 - layer.sparsity) for layer in layers)
    assert left == pytest.approx(counts["nonzero_weights"])
    with_encoder = layerwise(captioner, with_encoder=True)
    assert sum(layer.weights for layer in with_encoder) == weight_counts(captioner, True)["weights"]
    assert len(with_encoder) > len(layers)


def test_any_keras_model_can_be_counted():
    model = keras.Sequential(
        [keras.Input((8, 8, 3)), keras.layers.Conv2D(4, 3, name="conv"), keras.layers.BatchNormalization()],
        name="net",
    )
    counted = zeroed(model)
    assert layerwise(model) == [Layer("conv/kernel", pytest.approx(counted["net/conv/kernel"]), 108)]


def test_a_model_that_is_being_pruned_is_refused():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4, name="dense")])
    model = sc.prune(model, sc.Magnitude(0.5, 1))
    with pytest.raises(InputError, match="still being pruned: call strip_pruning"):
        layerwise(model)


def test_a_folder_that_is_no_finished_run_is_said(tmp_path):
    with pytest.raises(InputError, match="no run folder"):
        layerwise(tmp_path)


def test_the_order_is_from_the_least_pruned_to_the_most_pruned():
    layers = [Layer("a", 0.9, 1), Layer("b", 0.0, 1), Layer("c", 0.99, 1), Layer("d", 0.9, 5)]
    assert order(layers) == ["b", "a", "d", "c"]
    assert describe({"x": layers}) == "x, from the least pruned layer to the most pruned: b, a, d, c."


def test_our_soft_attention_has_the_published_layers_but_the_values(curves):
    model = sc.SoftAttention(30, embedding_size=5, rnn_size=6, attention_size=4, feature_size=7, name="c")
    zeroed(model)
    known = study_layers.read_layers(curves / LSTM)["Proposed"]
    found = {layer.name: layer for layer in by_published_name(layerwise(model), known)}
    assert set(known) - set(found) == {"value_layer/kernel"} and set(found) <= set(known)
    both = np.concatenate([np.ravel(model.cell.kernel), np.ravel(model.cell.recurrent_kernel)])
    assert found["basic_lstm_cell/kernel"].sparsity == pytest.approx(np.mean(both == 0))
    assert found["basic_lstm_cell/kernel"].weights == both.size == (5 + 7 + 6) * 24
    first = np.concatenate([np.ravel(model.initial_hidden.kernel), np.ravel(model.initial_carry.kernel)])
    assert found["rnn_initial_state/kernel"].sparsity == pytest.approx(np.mean(first == 0))
    query = np.mean(np.asarray(model.attention_query.kernel) == 0)
    assert found["MultiHeadAdd/query_layer/kernel"].sparsity == pytest.approx(query)


def test_all_published_layers_of_mobilenet_are_keras_layers(curves):
    network = keras.applications.MobileNet(weights=None, include_top=False, input_shape=(32, 32, 3))
    known = study_layers.read_layers(curves / MOBILENET)
    known = known["Proposed (80% sparse)"]
    found = {layer.name: layer.weights for layer in by_published_name(layerwise(network), known)}
    assert set(found) == set(known)
    assert found["Conv2d_0/weights"] == 3 * 3 * 3 * 32
    assert found["Conv2d_13_pointwise/weights"] == 1024 * 1024
    assert found["Conv2d_2_depthwise/depthwise_weights"] == 3 * 3 * 64


def test_all_published_layers_of_inception_are_found_in_ours(curves):
    network = pytest.importorskip("tfsparsecap.models.inception_v1").inception_v1(32)
    known = study_layers.read_layers(curves / INCEPTION)["Proposed"]
    found = {layer.name: layer.weights for layer in by_published_name(layerwise(network), known)}
    assert set(found) == set(known) and len(found) == 57
    assert found["Conv2d_1a_7x7/weights"] == 7 * 7 * 3 * 64
    assert found["Mixed_5c/Branch_1/Conv2d_0b_3x3/weights"] == 3 * 3 * 192 * 384


def test_without_a_table_layers_keep_their_names():
    layers = [Layer("lstm/kernel", 0.5, 4), Layer("lstm/recurrent_kernel", 0.25, 4)]
    assert by_published_name(layers, []) == layers
    assert compare({"x": layers}).names == ["lstm/kernel", "lstm/recurrent_kernel"]


def test_bars_are_as_long_as_the_sparsities(tmp_path, curves, monkeypatch):
    drawn = []
    write = study_layers.write_figure
    monkeypatch.setattr(
        study_layers, "write_figure", lambda figure, *rest: drawn.append(figure) or write(figure, *rest)
    )
    ours = [Layer("embedding/embeddings", 0.97, 10), Layer("other/kernel", 0.75, 10)]
    paths = plot_layerwise({"SMP": ours}, tmp_path / "a.png", published=curves / LSTM, title="Layers")
    (axes,) = drawn[0].axes
    names = [label.get_text() for label in axes.get_yticklabels()]
    published = study_layers.read_layers(curves / LSTM)
    assert names == [*published["Proposed"], "other/kernel"]
    ends = {}
    for bar in axes.patches:
        place = round(bar.get_y() + bar.get_height() / 2)
        ends.setdefault(names[place], []).append((bar.get_x() + bar.get_width()) / 100)
    expected = {name: [shares[name] for shares in published.values()] for name in published["Proposed"]}
    expected["embedding_map"].insert(0, 0.97)
    expected["other/kernel"] = [0.75]
    assert ends == {name: pytest.approx(values) for name, values in expected.items()}
    assert axes.get_xlim() == (70, 100) and "starts at 70 %" in axes.get_xlabel()
    with Image.open(paths[0]) as picture:
        assert picture.format == "PNG" and len(picture.convert("RGB").getcolors(1 << 24)) > 20
        assert picture.info["Description"].startswith("SMP, from the least pruned layer")
    words = {"".join(part.itertext()).strip() for part in ElementTree.parse(paths[1]).getroot().iter()}
    labels = {"SMP", "Proposed, published", "Gradual, published", "Hard-blind, published", "Layers"}
    assert labels | set(names) | {"97.0", "99.2", "75.0"} <= words
    assert sorted(tmp_path.iterdir()) == paths


def test_what_cannot_be_drawn_is_said(tmp_path):
    with pytest.raises(InputError, match="nothing to draw"):
        plot_layerwise({}, tmp_path / "a.png")
    with pytest.raises(InputError, match="not named as a PNG"):
        plot_layerwise({"a": [Layer("x", 0.5, 1)]}, tmp_path / "a.jpg")
    assert not list(tmp_path.iterdir())


def test_the_command_prints_a_table_and_draws(tiny_run, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    (tmp_path / "table.tsv").write_text(TABLE)
    main([str(tiny_run), "--published", str(tmp_path / "table.tsv"), "--output", str(tmp_path / "a.png")])
    said = capsys.readouterr().out
    rows = {words[0]: words[1:] for words in map(str.split, said.splitlines()) if words}
    weights = layerwise(tiny_run)[0].weights
    assert rows["embedding_map"] == [str(weights), "0.00%", "99.00%", "97.50%"]
    assert rows["value_layer/kernel"] == ["99.30%", "97.40%"]
    assert "lstm/recurrent_kernel" in rows and "tiny, from the least pruned layer to the most" in said
    lines = TABLE.splitlines()
    first = lines[0].split("\t")[1]
    shares = {line.split("\t")[0].removesuffix("/mask"): float(line.split("\t")[1]) for line in lines[1:]}
    names = ", ".join(sorted(shares, key=lambda name: shares[name]))
    assert f"{first}, published, from the least pruned layer to the most pruned: {names}" in said
    assert {file.name for file in tmp_path.iterdir()} == {"table.tsv", "a.png", "a.svg"}


def test_the_command_gives_json(tiny_run, capsys):
    main([str(tiny_run), str(tiny_run), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found == {"tiny": [layer._asdict() for layer in layerwise(tiny_run)]}


def test_runs_of_the_same_name_are_told_apart_by_their_folders():
    assert study_layers._labels(["runs/a", "runs/b/"]) == ["a", "b"]
    assert study_layers._labels(["x/a", "y/a"]) == ["x/a", "y/a"]


def test_a_picture_that_cannot_be_written_is_said_before_anything_is_loaded(tmp_path):
    with pytest.raises(InputError, match="no folder"):
        main([str(tmp_path / "no run"), "--output", str(tmp_path / "no" / "a.png")])
