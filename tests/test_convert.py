"""python -m tfsparsecap.convert: converts a published checkpoint to a run with the published captions."""

import base64
import json
import shutil

import numpy as np
import pytest

from tests.command_line import exit_code
from tfsparsecap import caption, convert

from .captioning.data.test_sentencepiece import CONTROL, UNKNOWN, WORD, model
from .core.weight_files.torch_files import write_state_dict

#: Small transformers with weights and captions of the original implementation, and 120 tokens.
TRANSFORMERS = ("ort_tiny", "acort_tiny_share_kv")
SPECIAL = [("<pad>", CONTROL), ("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)]
BASE = 117
CHECKPOINT = "model_best_pruned_sparse.pth"


@pytest.fixture(scope="module")
def published(fixtures):
    return fixtures / "updown_smp975"


@pytest.fixture(scope="module")
def features(fixtures):
    return fixtures / "coco_bottom_up"


@pytest.fixture(scope="module")
def converted(published, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "updown"
    made = convert.convert(published / CHECKPOINT, folder)
    assert (made["captioner"], made["nonzero_weights"], made["tokens"]) == ("UpDown", 47_264, 3000)
    return folder


@pytest.fixture
def copied(published, tmp_path):
    """Copies of the files that a conversion needs, for damaging them."""
    for name in (CHECKPOINT, "config.json", "sentencepiece_word.model"):
        shutil.copy(published / name, tmp_path / name)
        (tmp_path / name).chmod(0o644)
    return tmp_path


def refused(capsys, folder, *more) -> str:
    assert exit_code(convert.main, folder / CHECKPOINT, "--output", folder / "runs" / "new", *more) == 2
    text = capsys.readouterr().err
    assert text.startswith("error: ") and text.count("\n") == 1
    assert not (folder / "runs").exists(), "nothing is written"
    return text


def changed(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.slow
def test_captions_and_scores_of_each_beam_equal_the_originals(capsys, converted, published, features):
    expected = json.loads((published / "expected.json").read_text())
    computed = expected["computed"]
    # The beam of the checkpoint is 2.
    argv = [converted, "--features", features, "391895", "--json"]
    assert exit_code(caption.main, *argv) == 0
    (result,) = json.loads(capsys.readouterr().out)
    assert result["captions"][0]["caption"] == expected["published"]["391895"]["beam_2"]
    for beam in (1, 3):
        argv = [converted, "--features", features, *computed, "--beam", beam, "--json"]
        assert exit_code(caption.main, *argv) == 0
        for result in json.loads(capsys.readouterr().out):
            best = computed[result["image"]][f"beam_{beam}"]
            assert result["captions"][0]["caption"] == best["caption"]
            assert result["captions"][0]["score"] == pytest.approx(best["logprob"], abs=1e-3)


def tsv_of(features, images, file):
    """Writes published features of these images as a TSV of images of 640 x 480 pixels."""
    with file.open("w") as out:
        for image in images:
            att = np.load(features / "cocobu_att" / f"{image}.npy")
            boxes = np.load(features / "cocobu_box_relative" / f"{image}.npy") * [640, 480, 640, 480]
            texts = [base64.b64encode(array.astype("<f4")).decode() for array in (boxes, att)]
            print(image, 640, 480, len(att), *texts, sep="\t", file=out)
    return file


def test_features_of_all_images_of_the_data_are_needed(capsys, features, tmp_path):
    images = [path.stem for path in sorted((features / "cocobu_att").iterdir())]
    argv = ["--output", tmp_path / "bu", "--data", features, "--json"]
    parts = [tsv_of(features, images[i::2], tmp_path / f"train.tsv.{i}") for i in range(2)]
    assert exit_code(convert.main, parts[0], *argv) == 2
    assert "lacks features of 2 images of the data: " in capsys.readouterr().err
    assert not (tmp_path / "bu").exists(), "nothing is written"
    assert exit_code(convert.main, *parts, *argv) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["features"], made["images"]) == (str(tmp_path / "bu"), 5)
    assert (made["fewest_regions"], made["most_regions"], made["left_out"]) == (18, 47, 0)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["a.tsv", "b.pth"], "leave out checkpoints"),
        (["a.tsv", "--config", "c.json"], "leave out checkpoints, --config"),
        (["a.pth", "b.pth"], "2 checkpoints were given"),
        (["a.tsv", "--data", "absent"], "--data takes captions in one of MS-COCO's formats: "),
        (["all.csv"], "all.csv is neither a checkpoint (.pth, .pt, .bin, .ckpt) nor bottom-up features: "),
        (["a.tsv"], "there is no a.tsv: check the path"),
    ],
)
def test_files_that_do_not_fit_are_refused(capsys, monkeypatch, tmp_path, argv, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "all.csv").touch()
    assert exit_code(convert.main, *argv, "--output", "new") == 2
    text = capsys.readouterr().err
    assert message in text and text.startswith("error: ") and text.count("\n") == 1
    assert [file.name for file in tmp_path.iterdir()] == ["all.csv"], "nothing is written"


def test_missing_or_damaged_files_are_rejected(capsys, copied):
    (copied / "second.model").write_bytes(b"")
    assert "several (second.model, sentencepiece_word.model): give it with --tokenizer" in refused(
        capsys, copied
    )
    assert "second.model" in refused(capsys, copied, "--tokenizer", copied / "second.model")
    (copied / "second.model").unlink()
    content = (copied / CHECKPOINT).read_bytes()
    (copied / CHECKPOINT).write_bytes(content[: len(content) // 2])
    assert CHECKPOINT in refused(capsys, copied)
    (copied / CHECKPOINT).write_bytes(content)
    (copied / "config.json").write_text("{")
    assert "is not JSON" in refused(capsys, copied)
    (copied / "config.json").unlink()
    assert "with --config" in refused(capsys, copied)
    (copied / CHECKPOINT).unlink()
    assert "there is no checkpoint" in refused(capsys, copied)


@pytest.fixture(scope="module")
def transformer(fixtures):
    """`transformer(name)`: weights, configuration and the original's captions by image and beam."""

    def get(name):
        folder = fixtures / name
        content = json.loads((folder / "expected.json").read_text())
        with np.load(folder / "weights.npz") as file:
            return dict(file), content["config"], content["expected"]

    return get


def laid_out(folder, weights, config, words):
    """Writes a checkpoint in the published layout, with a SentencePiece model of these words."""
    write_state_dict(folder / "model.pth", weights)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer").mkdir()
    pieces = [f"\u2581{word}" for word in words]
    (folder / "tokenizer" / "word.model").write_bytes(model(WORD, pieces, SPECIAL))
    return folder / "model.pth"


def captions(capsys, folder, features, images, beam):
    """Returns the best caption of each image, with its score."""
    argv = [folder, "--features", features, *images, "--beam", beam, "--json"]
    assert exit_code(caption.main, *argv) == 0
    results = json.loads(capsys.readouterr().out)
    assert [result["image"] for result in results] == list(images)
    assert all(len(result["captions"]) == int(beam) for result in results)
    return {result["image"]: result["captions"][0] for result in results}


def pruned(weights):
    """Returns weights with logits of gates, except for one kind of attention, and the masked weights."""
    random, gates, masked, made = np.random.default_rng(4), {}, dict(weights), {}
    for name, values in weights.items():
        if values.ndim == 2 and "src_attn" not in name:
            # Equal weights belong to a shared layer and have equal gates.
            logits = made.setdefault(values.tobytes(), random.normal(0, 3, values.shape).astype(np.float32))
            logits[0, :2] = 0, 1e-3
            gates[f"{name}_pruning_mask"], masked[name] = logits, np.where(logits > 0, values, 0)
    return {**weights, **gates}, masked


@pytest.mark.slow
def test_a_converted_transformer_gives_the_originals_captions(capsys, transformer, features, tmp_path):
    weights, config, expected = transformer("ort_tiny")
    checkpoint = laid_out(tmp_path, weights, config, [f"w{token}" for token in range(4, 120)])
    made = convert.convert(checkpoint, tmp_path / "run")
    assert (made["captioner"], made["tokens"], made["max_length"]) == ("ObjectRelationTransformer", 120, 12)
    assert made["parameters"] == sum(values.size for values in weights.values())
    assert made["nonzero_weights"] == sum(
        np.count_nonzero(values) for values in weights.values() if values.ndim > 1
    )
    best = captions(capsys, tmp_path / "run", features, list(expected), 2)
    for image, beams in expected.items():
        beam = beams["beam_2"]
        text = [int(word.removeprefix("w")) for word in best[image]["caption"].split()]
        assert text == [token for token in beam["token_ids"] if token != config["eos_token_id"]]
        assert best[image]["score"] == pytest.approx(beam["logprob"], abs=1e-4)


@pytest.mark.slow
def test_a_converted_transformer_with_radix_encoding_generates_words(capsys, transformer, features, tmp_path):
    weights, config, expected = transformer("acort_tiny_share_kv")
    # The same captioner with the start and end ids of radix encoding, after the digits.
    moved = {2: BASE + 1, 3: BASE + 2}
    order = np.arange(120)
    for here, there in moved.items():
        order[[here, there]] = order[[there, here]]
    for key in ("model.tgt_embed.0.lut.weight", "model.generator.proj.weight", "model.generator.proj.bias"):
        weights[key] = weights[key][order]
    config |= {"tokenizer": "radix", "radix_base": BASE, "bos_token_id": BASE + 1, "eos_token_id": BASE + 2}
    # As many words as two digits can encode, so that every pair of digits is a word.
    checkpoint = laid_out(tmp_path, weights, config, [f"n{number}" for number in range(BASE**2 - 2)])
    made = convert.convert(checkpoint, tmp_path / "run")
    assert (made["tokens"], made["max_length"]) == (120, 12)
    best = captions(capsys, tmp_path / "run", features, list(expected), 1)
    for image, beams in expected.items():
        digits = np.array(beams["beam_1"]["token_ids"]).reshape(-1, 2) - 1
        assert digits.min() > 2 and digits.max() < BASE
        assert best[image]["caption"].split() == [f"n{number}" for number in digits @ (BASE, 1)]
        assert best[image]["score"] == pytest.approx(beams["beam_1"]["logprob"], abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", TRANSFORMERS)
def test_closed_gates_become_zeros_in_the_run(transformer, name, tmp_path):
    from tfsparsecap.captioning.inference.finished_run import FinishedRun
    from tfsparsecap.papers.published import published_arrays

    weights, config, _ = transformer(name)
    gated, masked = pruned(weights)
    checkpoint = laid_out(tmp_path, gated, config, [f"w{token}" for token in range(4, 120)])
    made = convert.convert(checkpoint, tmp_path / "run")
    arrays = published_arrays(FinishedRun.load(tmp_path / "run").captioner)
    assert arrays.keys() == masked.keys()
    for key, values in masked.items():
        np.testing.assert_array_equal(arrays[key], values, err_msg=key)
    # The checkpoint contains a shared layer once per depth.
    once = {values.tobytes(): values for values in masked.values() if values.ndim > 1}
    zeros = sum(np.count_nonzero(values == 0) for values in once.values())
    assert made["weights"] == sum(values.size for values in once.values())
    assert made["nonzero_weights"] == made["weights"] - zeros
    assert made["sparsity"] == pytest.approx(zeros / made["weights"])
    assert 0.4 < made["sparsity"] < 0.5 and arrays["att_embed.0.weight"][0, 0] == 0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"radix_base": None}, "radix_base is None in the checkpoint's configuration"),
        ({"radix_base": 1}, "the radix base is 1"),
        ({"radix_base": 100}, "start_id is 118 in the checkpoint's configuration and 101 in "),
        ({"tokenizer": "word"}, "start_id is 118 in the checkpoint's configuration and 2 in "),
        ({"max_seq_length": 1}, "max_seq_length is 1 in the configuration"),
        ({"max_seq_length": 10**9}, "max_seq_length is 1000000000"),
        ({"num_layers": 10**6}, "num_layers is 1000000 in the configuration"),
        ({"num_heads": 7}, "heads"),
        ({"share_layer_encoder": [0, 5]}, "share_encoder_layers is"),
        ({"share_att_decoder": "vv"}, "vv"),
    ],
)
def test_wrong_configurations_of_transformers_are_rejected(capsys, transformer, tmp_path, values, message):
    weights, config, _ = transformer("ort_tiny")
    config |= {"tokenizer": "radix", "radix_base": BASE, "bos_token_id": BASE + 1, "eos_token_id": BASE + 2}
    checkpoint = laid_out(tmp_path, weights, config | values, [f"n{number}" for number in range(500)])
    assert exit_code(convert.main, checkpoint, "--output", tmp_path / "run") == 2
    text = capsys.readouterr().err
    assert message in text and text.startswith("error: ") and text.count("\n") == 1
    assert not (tmp_path / "run").exists(), "nothing is written"


TRANSFORMER = {"caption_model": "relation_transformer", "d_model": 96, "num_layers": 1}


@pytest.mark.parametrize(
    ("values", "more", "message"),
    [
        ({"caption_model": "transformer_xl"}, [], 'caption_model "transformer_xl"'),
        (TRANSFORMER, [], "dim_feedforward is missing"),
        ({**TRANSFORMER, "dim_feedforward": 96}, [], "lacks model.decoder"),
        ({"rnn_size": 10**9}, [], "rnn_size is 1000000000 in the configuration, but no tensor"),
        ({"rnn_size": 288}, [], "the captioner has"),
        ({"vocab_size": 2999}, [], "has 2999 tokens"),
        ({}, ["--data", "absent"], "give --data an existing one"),
        ({}, ["--features", "absent"], "give --features an existing one"),
        ({}, ["--output", "."], "exists: give --output a new folder"),
    ],
)
def test_other_captioners_and_paths_are_refused(capsys, copied, monkeypatch, values, more, message):
    monkeypatch.chdir(copied)
    changed(copied, **values)
    assert message in refused(capsys, copied, *more)


@pytest.mark.slow
def test_features_of_a_tsv_give_the_originals_caption(capsys, converted, published, features, tmp_path):
    tsv_of(features, ["391895"], tmp_path / "a.tsv")
    assert exit_code(convert.main, tmp_path / "a.tsv", "--output", tmp_path / "bu") == 0
    assert "37 to 37 of 2048 numbers" in capsys.readouterr().out
    assert exit_code(caption.main, converted, "--features", tmp_path / "bu", "391895", "--json") == 0
    (result,) = json.loads(capsys.readouterr().out)
    expected = json.loads((published / "expected.json").read_text())
    assert result["captions"][0]["caption"] == expected["published"]["391895"]["beam_2"]
