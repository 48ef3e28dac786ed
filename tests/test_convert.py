"""python -m tfsparsecap.convert: a published checkpoint in, a run that captions as published out."""

import json
import shutil

import pytest

from tfsparsecap import caption, convert
from tfsparsecap.command import run

CHECKPOINT = "model_best_pruned_sparse.pth"


@pytest.fixture(scope="module")
def published(shared):
    return shared / "fixtures" / "updown_smp975"


@pytest.fixture(scope="module")
def features(shared):
    return shared / "fixtures" / "coco_bottom_up"


@pytest.fixture(scope="module")
def converted(published, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "updown"
    made = convert.convert(published / CHECKPOINT, folder)
    assert (made["captioner"], made["nonzero_weights"], made["tokens"]) == ("UpDown", 47_264, 3000)
    return folder


@pytest.fixture
def copied(published, tmp_path):
    """The files that a conversion needs, to be damaged."""
    for name in (CHECKPOINT, "config.json", "sentencepiece_word.model"):
        shutil.copy(published / name, tmp_path / name)
        (tmp_path / name).chmod(0o644)
    return tmp_path


def ended(main, *argv) -> int:
    with pytest.raises(SystemExit) as end:
        run(lambda: main([str(part) for part in argv]))
    return end.value.code


def refused(capsys, folder, *more) -> str:
    assert ended(convert.main, folder / CHECKPOINT, "--output", folder / "runs" / "new", *more) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and said.count("\n") == 1
    assert not (folder / "runs").exists(), "nothing is written"
    return said


def changed(folder, **values):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.parametrize(("image", "beam"), [("391895", 2), ("184613", 1)])
def test_a_converted_run_says_what_was_published(capsys, converted, published, features, image, beam):
    said = json.loads((published / "expected.json").read_text())["published"][image][f"beam_{beam}"]
    argv = [converted, "--features", features, image, "--beam", beam, "--json"]
    assert ended(caption.main, *argv) == 0
    (result,) = json.loads(capsys.readouterr().out)
    assert result["captions"][0]["caption"] == said


def test_captions_and_scores_of_each_beam_are_the_originals(capsys, converted, published, features):
    computed = json.loads((published / "expected.json").read_text())["computed"]
    for beam in (1, 3):
        assert (
            ended(caption.main, converted, "--features", features, *computed, "--beam", beam, "--json") == 0
        )
        for result in json.loads(capsys.readouterr().out):
            best = computed[result["image"]][f"beam_{beam}"]
            assert result["captions"][0]["caption"] == best["caption"]
            assert result["captions"][0]["score"] == pytest.approx(best["logprob"], abs=1e-3)


def test_captions_can_be_drawn_and_absent_features_are_named(capsys, converted, features):
    argv = [
        converted,
        "--features",
        features,
        "391895",
        "404",
        "--sample",
        "3",
        "--top-k",
        "5",
        "--seed",
        "1",
    ]
    assert ended(caption.main, *argv, "--json") == 2
    captured = capsys.readouterr()
    good, bad = json.loads(captured.out)
    scores = [entry["score"] for entry in good["captions"]]
    assert len(scores) == 3 and scores == sorted(scores, reverse=True)
    assert "cocobu_att/404.npy" in bad["error"] and captured.err.count("\n") == 1
    assert ended(caption.main, converted, "391895") == 2
    assert "takes features, not pictures: give --features FOLDER" in capsys.readouterr().err
    assert ended(caption.main, *argv, "--beam", "2") == 2
    assert "exclude each other" in capsys.readouterr().err


def test_another_architecture_is_named(capsys, copied):
    changed(copied, caption_model="transformer_xl")
    assert 'caption_model "transformer_xl"' in refused(capsys, copied)
    changed(copied, caption_model="relation_transformer", d_model=96, dim_feedforward=96, num_layers=1)
    assert "num_heads is missing" in refused(capsys, copied)
    changed(copied, num_heads=8)
    said = refused(capsys, copied)
    assert "lacks att_embed" not in said and "lacks model.decoder" in said and "which no layer wants" in said


def test_other_sizes_are_refused_before_memory_is_taken(capsys, copied):
    changed(copied, rnn_size=10**9)
    assert "rnn_size is 1000000000 in the configuration, but no tensor" in refused(capsys, copied)
    changed(copied, rnn_size=288)
    assert "the captioner wants" in refused(capsys, copied)
    changed(copied, rnn_size=144, vocab_size=2999)
    assert "knows 2999 tokens" in refused(capsys, copied)


def test_files_that_are_missing_or_damaged_are_named(capsys, copied):
    (copied / "second.model").write_bytes(b"")
    assert "several (second.model, sentencepiece_word.model): name it with --tokenizer" in refused(
        capsys, copied
    )
    assert "second.model" in refused(capsys, copied, "--tokenizer", copied / "second.model")
    (copied / "second.model").unlink()
    content = (copied / CHECKPOINT).read_bytes()
    (copied / CHECKPOINT).write_bytes(content[: len(content) // 2])
    assert CHECKPOINT in refused(capsys, copied)
    (copied / CHECKPOINT).write_bytes(content)
    (copied / "config.json").write_text("{")
    assert "is no JSON" in refused(capsys, copied)
    (copied / "config.json").unlink()
    assert "name it with --config" in refused(capsys, copied)


def test_what_exists_is_left_as_it_is(capsys, copied):
    (copied / "kept").mkdir()
    (copied / "kept" / "file").write_text("mine")
    assert ended(convert.main, copied / CHECKPOINT, "--output", copied / "kept") == 2
    assert "exists: give --output a folder that does not" in capsys.readouterr().err
    assert [path.name for path in (copied / "kept").iterdir()] == ["file"]
