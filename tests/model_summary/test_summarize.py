"""Summaries of models against counts by hand, published figures, pruning and Keras."""

import csv
import dataclasses
import json

import keras
import numpy as np
import pytest
from keras import layers

import tfsparsecap as sc
from benchmarks.paper_sizes import PAPER_CAPTIONERS
from tfsparsecap.captioning.models import SoftAttention
from tfsparsecap.captioning.models.image_encoders.applications import MobileNetV1Encoder
from tfsparsecap.captioning.models.image_encoders.inception_v1 import inception_v1
from tfsparsecap.errors import InputError
from tfsparsecap.model_summary import summarize as cost
from tfsparsecap.model_summary.summarize import summary

ALL, PRUNABLE = "all weights", "prunable weights"


def quiet(model, **options):
    return summary(model, **{"print_fn": lambda text: None, "compress": False, **options})


def multiply_adds(model, **options):
    flops = quiet(model, **options).totals[ALL].flops
    assert flops % 2 == 0
    return flops // 2


def sequential(shape, *parts):
    return keras.Sequential([keras.Input(shape), *parts])


def with_zeros(model, sparsity):
    """Sets exactly this share of the prunable weights to 0, and all others to 1."""
    for weight in model.weights:
        values = np.ones(weight.shape, "float32")
        if values.ndim > 1:
            values.reshape(-1)[: round(values.size * sparsity)] = 0.0
        weight.assign(values)
    return model


@pytest.mark.slow
@pytest.mark.parametrize(("width", "millions"), [(1.0, 569), (0.25, 41)])
def test_flops_of_mobilenet_are_the_published_ones(width, millions):
    """Howard et al., "MobileNets", table 6, of an image of 224 x 224 and with the classifier."""
    network = keras.applications.MobileNet((224, 224, 3), alpha=width, weights=None)
    assert round(multiply_adds(network) / 1e6) == millions


@pytest.mark.slow
def test_flops_of_inception_v1_equal_the_published_ones():
    """Szegedy et al., "Going Deeper with Convolutions", section 1: 1.5 billion multiply-adds."""
    assert round(multiply_adds(inception_v1(224)) / 1e9, 1) == 1.5


@pytest.mark.slow
def test_flops_of_up_down_at_the_papers_size_by_hand(capsys):
    result = summary(PAPER_CAPTIONERS["up_down"].make(20))
    total = result.totals[ALL]
    assert (total.weights, total.bytes["float32"]) == (53_149_537, 4 * 53_149_537)
    image = 36 * 2048 * 1000 + 2048 * 1000 + 36 * 1000 * 512 + 1000 * 4000
    a_word = 3000 * 4000 + 1000 * 512 + 36 * 512 + 36 * 1000 + 3000 * 4000 + 1000 * 10_000
    assert total.flops == 2 * (image + 9 * 3 * a_word)
    assert result.totals[PRUNABLE].flops == total.flops - 2 * 9 * 3 * 36 * 1000
    assert "gzip" not in total.bytes
    printed = capsys.readouterr().out
    assert "53,149,537" in printed and "one caption of 9 words (beam 3)" in printed
    assert "compress=True" in printed


def test_flops_per_token_of_soft_attention_by_hand():
    """The difference between captions of one word and two, for each layer."""
    captioner = SoftAttention(1000, feature_size=832)
    one_word, two_words = (quiet(captioner, words=words, beam=5, input_shapes=(196, 832)) for words in (1, 2))
    steps = {
        a.name: (b.figures.flops - a.figures.flops) // 2 // 5
        for a, b in zip(one_word.rows, two_words.rows, strict=True)
    }
    assert {name: number for name, number in steps.items() if number} == {
        "attention_query": 512 * 512,
        "attention_score": 196 * 512,
        "lstm": (256 + 832 + 512) * 4 * 512,
        "output": 512 * 1000,
        captioner.name: 196 * 832,
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "method", "positions", "half", "overhead"),
    [("up_down", "Up-Down", 0, 8.7, 0.05), ("ort", "Object Relation Transformer", 5000 * 512, 14.5, 0.2)],
)
def test_pruned_captioners_have_the_published_sizes(name, method, positions, half, overhead, fixtures):
    """Non-zero weights, and MB of a dense checkpoint and of sparse COO ones (SMP, Table 3).

    The transformer's checkpoint has a table of 5000 positions, too. `half` is with 99.1 % zeros in float16.
    """
    with open(
        fixtures / "published_curves" / "Pruning_Image_Captioning_Models_MS-COCO_.tsv", encoding="utf-8"
    ) as file:
        published = [row for row in csv.DictReader(file, delimiter="\t") if row["Method"] == method]
    captioner = PAPER_CAPTIONERS[name].make(20)
    for row in sorted(published, key=lambda row: -float(row["Decoder NNZ (M)"])):
        dense = row["Type"] == "Dense"
        with_zeros(captioner, 0.0 if dense else float(row["Annotation"].split("%")[0]) / 100)
        total = quiet(captioner).totals[ALL]
        # Of the transformer with 99.1 %, the file says 0.5 and the paper 0.6 million.
        expected = "0.6" if row["Decoder Size (MB)"] == "20.8" else row["Decoder NNZ (M)"]
        assert f"{total.nonzeros / 1e6:.1f}" == expected
        megabytes = (total.bytes["float32" if dense else "coo"] + 4 * positions) / 1e6
        # The sparsity in the table has three digits, and a file its own overhead.
        assert megabytes == pytest.approx(float(row["Decoder Size (MB)"]), rel=3e-3, abs=overhead)
    # Values of two bytes instead of four; the indices stay.
    assert megabytes - 2 * (total.nonzeros + positions) / 1e6 == pytest.approx(half, abs=overhead)


@pytest.fixture(scope="module")
def published_soft_attention():
    """The kernels of the published Soft-Attention decoders, by cell, as a model."""

    def make(cell):
        gates = {"lstm": [4 * 512], "gru": [2 * 512, 512]}[cell]
        kernels = {
            "rnn_initial_state": (1024, 512),
            "memory_layer": (832, 512),
            "value_layer": (832, 512),
            "query_layer": (512, 512),
            "attention_v": (512, 1),
            "output_projection": (512, 9962),
            **{f"cell_{number}": (256 + 512 + 512, gate) for number, gate in enumerate(gates)},
        }
        inputs = {name: keras.Input((rows,), name=name) for name, (rows, _) in kernels.items()}
        outputs = [
            layers.Dense(columns, use_bias=False, name=f"{name}_kernel")(inputs[name])
            for name, (_, columns) in kernels.items()
        ]
        words = keras.Input((1,), dtype="int32", name="words")
        outputs.append(layers.Embedding(9962, 256, name="embedding_map")(words))
        return keras.Model([*inputs.values(), words], outputs)

    return make


COLUMNS = {
    "Initial state": "rnn_initial_state_kernel",
    "LSTM kernel": "cell_0_kernel",
    "Key layer": "memory_layer_kernel",
    "Value layer": "value_layer_kernel",
    "Query layer": "query_layer_kernel",
    "QK projection": "attention_v_kernel",
    "Word embedding": "embedding_map",
    "Output layer": "output_projection_kernel",
}


def test_the_published_soft_attention_has_11_9_million_weights(fixtures, published_soft_attention):
    """Only with these sizes do the published sparsities of the layers give the published overall sparsity."""
    rows = {row.name: row.figures for row in quiet(published_soft_attention("lstm")).rows}
    sizes = {column: rows[name].weights for column, name in COLUMNS.items()}
    assert sum(sizes.values()) == 11_911_168
    name = "progression__Sparsity_progression_using_the_proposed_pruning_method.tsv"
    with open(fixtures / "published_curves" / name, encoding="utf-8") as file:
        progress = list(csv.DictReader(file, delimiter="\t"))
    for step in progress:
        overall = sum(float(step[column]) * size for column, size in sizes.items()) / sum(sizes.values())
        assert overall == pytest.approx(float(step["Overall"]), abs=2e-7)


@pytest.mark.parametrize(
    ("cell", "encoder"),
    [("lstm", ""), ("gru", ""), pytest.param("lstm", "Inception-V1_", marks=pytest.mark.slow)],
)
def test_soft_attention_pruned_has_the_published_nonzeros(cell, encoder, fixtures, published_soft_attention):
    decoder = published_soft_attention(cell)
    network = inception_v1(224) if encoder else None
    name = f"performance__Pruning_Soft-Attention_{encoder}{cell.upper()}_MS-COCO_CIDEr.tsv"
    with open(fixtures / "published_curves" / name, encoding="utf-8") as file:
        published = {float(row["Sparsity"]): row["NNZ"] for row in csv.DictReader(file, delimiter="\t")}
    assert list(published) == [0.8, 0.9, 0.95, 0.975]
    for sparsity, nonzeros in published.items():
        models = [with_zeros(model, sparsity) for model in (decoder, network) if model is not None]
        count = sum(quiet(model).totals[PRUNABLE].nonzeros for model in models)
        assert f"{count / 1e6:.1f} M" == nonzeros


@pytest.mark.parametrize("block_shape", [(1, 1), (16, 1)])
def test_gated_models_count_like_stripped_ones(block_shape):
    model = sequential(
        (8, 8, 16), layers.Conv2D(32, 3), layers.BatchNormalization(), layers.Flatten(), layers.Dense(64)
    )
    pruned = sc.prune(model, "supermask", sparsity=0.75, block_shape=block_shape, total_steps=10)
    random = np.random.default_rng(0)
    for gate in sc.gates.gates(pruned):
        gate.logits.assign(random.normal(-1.0, 1.0, gate.logits.shape))
    with_gates = quiet(pruned)
    gated = with_gates.totals[PRUNABLE]
    assert gated.weights == pruned.pruning.gated_size
    assert gated.sparsity == pytest.approx(float(pruned.pruning.current_sparsity()), abs=1e-6)
    stock = sc.strip_pruning(pruned)
    kernels = [np.asarray(weight) for weight in stock.trainable_weights if len(weight.shape) > 1]
    assert gated.nonzeros == sum(np.count_nonzero(kernel) for kernel in kernels)
    assert quiet(stock).totals == with_gates.totals
    convolution, dense = kernels
    kernel_products = 36 * np.count_nonzero(convolution) + np.count_nonzero(dense)
    assert with_gates.totals[ALL].flops_left == 2 * kernel_products
    assert with_gates.totals[ALL].flops == 2 * (36 * convolution.size + dense.size)


@pytest.fixture
def tiny_captioner():
    encoder = MobileNetV1Encoder(0.25, "conv_pw_3_relu", image_size=32, weights=None)
    return SoftAttention(50, encoder=encoder, embedding_size=16, rnn_size=32, attention_size=16)


def test_figures_of_encoder_and_decoder_add_up(tiny_captioner):
    totals = quiet(tiny_captioner).totals
    for figure in ("weights", "nonzeros", "flops", "flops_left"):
        parts = [getattr(totals[part], figure) for part in ("encoder", "decoder")]
        assert sum(parts) == getattr(totals[ALL], figure) and min(parts) > 0
    assert totals["encoder"].weights == tiny_captioner.encoder.count_params()
    without = quiet(tiny_captioner, input_shapes={"features": (64, 32)}).totals
    assert without["encoder"].flops == 0
    assert without["decoder"].flops == totals["decoder"].flops


def test_every_weight_counts_once_and_keras_agrees():
    shared = layers.Dense(8)
    table = layers.ReversibleEmbedding(20, 8)
    tokens = keras.Input((5,), dtype="int32")
    x = layers.LayerNormalization()(shared(shared(table(tokens))))
    again = keras.Sequential([layers.Dropout(0.5), shared])
    model = keras.Model(tokens, table(again(x), reverse=True))
    result = quiet(model)
    assert result.totals[ALL].weights == model.count_params()
    assert result.totals[ALL].flops == 2 * 5 * (3 * 64 + 20 * 8)
    assert [row.name for row in result.rows].count(shared.name) == 1


def test_a_weight_that_a_wrapper_has_too_belongs_to_the_layer_that_can_be_pruned():
    dense = layers.Dense(6, name="dense")
    model = keras.Sequential([keras.Input((8,)), layers.SpectralNormalization(dense, name="norm")])
    dense.kernel.assign(np.arange(48).reshape(8, 6) >= 12)
    costs = summary(model, print_fn=str)
    assert costs.totals["prunable weights"].weights == 48
    assert costs.totals["prunable weights"].nonzeros == 36
    assert [w.name for row in costs.rows for w in row.weights].count("kernel") == 1
    sc.prune(model, "magnitude", sparsity=0.5)
    assert summary(model, print_fn=str).totals["prunable weights"].weights == 48


def test_biases_and_normalisation_are_shown_but_not_prunable():
    model = sequential(
        (8,), layers.Dense(16, name="a"), layers.BatchNormalization(name="b"), layers.Dense(4, name="c")
    )
    result = quiet(model)
    tensors = {(row.name, weight.name): weight.prunable for row in result.rows for weight in row.weights}
    assert {name for name, prunable in tensors.items() if prunable} == {("a", "kernel"), ("c", "kernel")}
    assert len(tensors) == 2 + 4 + 2
    assert result.totals[PRUNABLE].weights == 8 * 16 + 16 * 4
    assert result.totals[ALL].nonzeros == 8 * 16 + 16 * 4 + 2 * 16  # biases, offset and mean start at 0


def test_a_summary_becomes_json_and_its_repr_is_short():
    result = quiet(sequential((6,), layers.Dense(5)), compress=True)
    loaded = json.loads(json.dumps(dataclasses.asdict(result)))
    assert loaded["totals"][ALL]["weights"] == 35
    assert loaded["totals"][ALL]["bytes"].keys() == result.totals[ALL].bytes.keys() >= {"gzip", "bzip2"}
    (layer,) = loaded["rows"]
    assert [weight["shape"] for weight in layer["weights"]] == [[6, 5], [5]]
    assert sum(weight["figures"]["flops"] for weight in layer["weights"]) == 60
    assert len(repr(result)) < 120


def test_large_models_are_compressed_only_on_request(monkeypatch):
    model = sequential((20,), layers.Dense(5))
    assert "gzip" in summary(model, print_fn=lambda text: None).totals[ALL].bytes
    monkeypatch.setattr(cost, "COMPRESSED_UP_TO", 100)
    large = summary(model, print_fn=lambda text: None)
    assert "gzip" not in large.totals[ALL].bytes and "compress=True" in large.notes[0]
    assert "gzip" in quiet(model, compress=True).totals[ALL].bytes


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (keras.Sequential([layers.Dense(3)], name="raw"), {}, "raw is not built.*call it on a batch"),
        ("model.keras", {}, "takes a Keras 3 model, not a builtins.str"),
        (sequential((3,), layers.Dense(2)), {"beam": -1}, "beam is -1: give a whole number of at least 1"),
        (sequential((3,), layers.Dense(2)), {"words": 0}, "words is 0"),
        (sequential((3,), layers.Dense(2)), {"words": 2.5}, "words is 2.5"),
        (sequential((None, 3), layers.Dense(2)), {}, r"has shape \(None, None, 3\): .*; give input_shapes="),
    ],
)
def test_unusable_models_and_numbers_are_rejected(model, options, message):
    with pytest.raises(InputError, match=message):
        quiet(model, **options)
