"""Validation samples that the exporter takes from a run, and the confidence calibrated on them."""

from types import SimpleNamespace

import numpy as np
import tensorflow as tf
from PIL import Image
from tfsparsecap_export.caption_files import quality
from tfsparsecap_export.model_sources import Run, validation_samples

from tfsparsecap.captioning.data.records import CaptionData
from tfsparsecap.captioning.data.tokenizers import WordTokenizer
from tfsparsecap.captioning.runs.run_folder import RunFolder
from tfsparsecap.captioning.settings.schema import Config, Data
from tfsparsecap.captioning.settings.sections import Decoding


def test_the_confidence_is_calibrated_with_the_function_words_of_the_run(tmp_path, monkeypatch):
    rows = ["image,caption,split"]
    for number, split in enumerate(["train", "validation", "test"]):
        Image.new("RGB", (20, 20), (number, 0, 0)).save(tmp_path / f"{number}.png")
        rows.append(f"{number}.png,Der Hund,{split}")
    (tmp_path / "captions.csv").write_text("\n".join(rows) + "\n")
    data = Data(kind="table", folder=str(tmp_path))
    # "Die" is no English function word, and "der Hund" does not contain it.
    tokenizer = SimpleNamespace(words=SimpleNamespace(decode=lambda ids: "die die auf hund"))
    inputs = {"image": tf.TensorSpec((1, 16, 16, 3), tf.uint8)}
    monkeypatch.setattr(
        quality, "best_captions", lambda content, samples: [(np.array([5, 2]), -1.0, ()) for _ in samples]
    )
    for words, good in (("english", 0.0), (["Die", "auf"], 1.0)):
        decoding = Decoding(plain=True, function_words=words)
        run = Run(None, tokenizer, Config(data=data, decoding=decoding))
        validation, source, note = validation_samples(run, inputs, 10)
        assert (source, note) == ("validation images", "") and len(validation.samples) == 1
        assert quality.calibrate_confidence(b"", validation, end_id=2).good == good


def test_changed_data_is_noticed(tmp_path):
    for number in range(2):
        Image.new("RGB", (20, 20), (number, 0, 0)).save(tmp_path / f"{number}.png")
    (tmp_path / "captions.csv").write_text("image,caption,split\n0.png,a dog,train\n1.png,a cat,validation\n")
    config = Config(data=Data(kind="table", folder=str(tmp_path)))
    folder = RunFolder(tmp_path / "run")
    folder.create(config, WordTokenizer.from_captions(["a dog"]), data=CaptionData("then", []))
    run = Run(None, SimpleNamespace(words=SimpleNamespace(decode=str)), config, folder=folder)
    inputs = {"image": tf.TensorSpec((1, 16, 16, 3), tf.uint8)}
    validation, source, note = validation_samples(run, inputs, 10)
    assert len(validation.samples) == 1 and source == "validation images"
    assert "run has changed since the training: its validation and test images may have been" in note
    run.config.data.folder = str(tmp_path / "moved")
    validation, source, note = validation_samples(run, inputs, 10)
    assert (validation, source) == (None, "synthetic inputs")
    assert note.startswith("the inputs are synthetic, because there is no data folder") and "moved" in note


def test_captions_of_drawn_images_count_as_not_good(monkeypatch):
    samples = [{"image": np.full((1, 8, 8, 3), number, np.uint8)} for number in range(48)]
    seen = []

    def best_captions(content, samples):
        for sample in samples:
            seen.append(sample)
            drawn = sample["image"].std() > 0 or sample["image"].max() > 47
            yield np.array([5, 2]), -2.0 if drawn else -1.0, ()

    monkeypatch.setattr(quality, "best_captions", best_captions)
    validation = quality.CaptionedSamples(samples, [["a dog"]] * 48, lambda ids: "dog")
    calibration = quality.calibrate_confidence(b"", validation, end_id=2)
    assert [sample["image"].shape for sample in seen] == [(1, 8, 8, 3)] * 51
    assert calibration.images == 48 and calibration.good == 1
    assert calibration.probability(-2.0, 2) < 0.5 < calibration.probability(-1.0, 2)
    # Region features cannot be drawn.
    seen.clear()
    features = [{"features": np.zeros((1, 4, 8), np.float32)}] * 48
    monkeypatch.setattr(
        quality, "best_captions", lambda content, samples: [(np.array([5, 2]), -1.0, ()) for _ in samples]
    )
    validation = quality.CaptionedSamples(features, [["a dog"]] * 48, lambda ids: "dog")
    assert quality.calibrate_confidence(b"", validation, end_id=2).images == 48
