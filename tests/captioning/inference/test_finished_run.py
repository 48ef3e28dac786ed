"""Finished runs: loading, evaluation, counts of weights."""

import shutil
from dataclasses import replace

import keras
import numpy as np
import pytest

from tfsparsecap.captioning.data.tokenizers import WordTokenizer
from tfsparsecap.captioning.inference.finished_run import FinishedRun
from tfsparsecap.captioning.runs.run_folder import RunFolder
from tfsparsecap.captioning.settings.build import load_data, make_captioner
from tfsparsecap.captioning.settings.config_files import load_config
from tfsparsecap.errors import InputError


@pytest.fixture(scope="module")
def finished_run(tiny_run):
    return FinishedRun.load(tiny_run)


@pytest.mark.slow
def test_evaluation_captions_every_image_of_the_split_as_generate_does(finished_run):
    data = load_data(finished_run.config)
    labels = {data.split("test")[2].image_id: ("unicorn",), data.split("train")[0].image_id: ("star",)}
    records = [replace(record, labels=labels.get(record.image_id)) for record in data.records]
    data = replace(data, records=records)
    scores, captions = finished_run.evaluate(data, "test", progress=False)
    assert scores["images"] == len(captions) == 4 and scores["beam"] == 1
    for record, caption in zip(data.split("test"), captions, strict=True):
        assert caption.image_id == record.image_id and caption.references == record.captions
        ((text, score, *_),) = finished_run.generate(record.image)
        assert text == caption.caption and score == pytest.approx(caption.score, abs=1e-4)
    assert [image_caption.labels for image_caption in captions] == [None, None, ("unicorn",), None]
    assert scores["object_images"] == 1 and scores["object_recall"] == 0
    # Stars are not in the image; the data set has labels of some.
    assert scores["object_hallucination"] == ("star" in captions[2].caption.split())
    # The encoder is not pruned, so its weights are counted separately.
    kernels = [v for v in finished_run.captioner.encoder.variables if v.path.endswith("kernel")]
    assert scores["encoder_weights"] == sum(np.prod(kernel.shape) for kernel in kernels)
    assert scores["encoder_nonzero_weights"] == sum(np.count_nonzero(kernel.numpy()) for kernel in kernels)


def test_the_search_follows_the_settings_of_decoding(finished_run):
    rules = finished_run.decoder().rules
    assert rules.no_repeat_ngram == 0, "correct captions of scenes repeat n-grams"
    assert rules.description()["function_words"] > 0
    finished_run.change_search(no_repeat_ngram=2, length_penalty=0.5)
    rules = finished_run.decoder().rules
    assert (rules.no_repeat_ngram, rules.length_penalty) == (2, 0.5)
    finished_run.change_search(plain=True)
    assert finished_run.decoder().rules is None
    finished_run.change_search(length_penalty=2.0)  # as `--length-penalty` on a converted checkpoint
    assert finished_run.decoder().rules.length_penalty == 2.0
    finished_run.change_search(plain=False, no_repeat_ngram=None, length_penalty=0.7)


def test_incomplete_and_damaged_folders_are_refused(tiny_run, tmp_path):
    with pytest.raises(InputError, match="run folder"):
        FinishedRun.load(tmp_path)
    copy = tmp_path / "my runs" / "copy"
    shutil.copytree(tiny_run, copy)
    (copy / "model.keras").write_bytes(b"no model")
    with pytest.raises(InputError, match=r"cannot read .*model\.keras .*: copy it again, or train"):
        FinishedRun.load(copy)
    (copy / "model.keras").unlink()
    with pytest.raises(InputError, match=r"finish it with .* --runs '.*/my runs' --resume"):
        FinishedRun.load(copy)


@pytest.mark.slow
def test_files_of_different_runs_are_refused(tiny_run, tmp_path):
    copy = shutil.copytree(tiny_run, tmp_path / "copy")
    vocabulary, config = (copy / "vocabulary.txt").read_text(), (copy / "config.yaml").read_text()
    keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]).save(tmp_path / "other.keras")
    for file, content, message in (
        ("vocabulary.txt", f"{vocabulary}more\n".encode(), r"the vocabulary has \d+ tokens, the model \d+;"),
        ("config.yaml", b"model: {encoder: null}", "only one of model and settings has an encoder"),
        ("model.keras", (tmp_path / "other.keras").read_bytes(), "model.keras is not a captioner"),
        (
            "config.yaml",
            config.replace("image_size: 32", "image_size: 64").encode(),
            "model.encoder.image_size is 64 in config.yaml and 32 in the model",
        ),
    ):
        before = (copy / file).read_bytes()
        (copy / file).write_bytes(content)
        with pytest.raises(InputError, match=f"the files in .*copy do not belong together: {message}"):
            FinishedRun.load(copy)
        (copy / file).write_bytes(before)


@pytest.mark.slow
def test_another_caption_length_than_the_model_has_is_refused(tmp_path):
    sizes = ["size=8", "hidden_size=8", "heads=2", "layers=1", "feature_size=4", "encoder=null"]
    model = ["model.kind=transformer", *(f"model.{size}" for size in sizes)]
    config = load_config(None, ["name=run", "data.max_length=6", "pruning=null", *model])
    folder, words = RunFolder(tmp_path / "run"), WordTokenizer.from_captions(["a red circle"])
    folder.create(config, words)
    make_captioner(config, words).save(folder.model)
    assert FinishedRun.load(folder.path).captioner.max_length == 6
    text = folder.config_file.read_text()
    folder.config_file.write_text(text.replace("max_length: 6", "max_length: 9"))
    with pytest.raises(
        InputError, match=r"together: data\.max_length is 9 in config\.yaml and 6 in the model;"
    ):
        FinishedRun.load(folder.path)


def test_an_empty_split_is_refused(finished_run):
    data = load_data(finished_run.config)
    data.records[:] = data.split("train")
    with pytest.raises(InputError, match="the test split of scenes has no images"):
        finished_run.evaluate(data, "test")


@pytest.mark.slow
def test_objects_that_the_captioner_finds_likely_come_with_the_captions(finished_run):
    data = load_data(finished_run.config)
    names = ("circle", "heart", "star")
    captioner = make_captioner(finished_run.config, finished_run.tokenizer, objects=names, weights=False)
    captioner.object_scores.kernel.assign(captioner.object_scores.kernel * 0)
    # The sum over the cells: probabilities of 0.6, 0.1 and 0.75.
    cells = captioner.encoder.features_shape[0]
    captioner.object_scores.bias.assign(np.log(np.array([1.5, 1 / 9, 3]) / cells))
    run = FinishedRun(captioner, finished_run.tokenizer, finished_run.config)
    image = data.split("test")[0].image
    for options in ({}, {"beam": 2}, {"samples": 2, "seed": 1}):
        result = run.generate(image, **options)
        assert [name for name, _ in result.objects] == ["star", "circle"]
        assert [share for _, share in result.objects] == pytest.approx([0.75, 0.6], abs=1e-4)
    assert finished_run.generate(image).objects == ()
    labelled = [replace(record, labels=("star", "heart")) for record in data.records]
    scores, captions = run.evaluate(replace(data, records=labelled), progress=False)
    assert {image_caption.objects for image_caption in captions} == {("star", "circle")}
    # Circles are not labelled in this data set.
    assert (scores["objects_precision"], scores["objects_recall"]) == (1, 1 / 2)
    assert "objects_recall" not in finished_run.evaluate(replace(data, records=labelled), progress=False)[0]
