"""The CIDEr that int8 costs, and which layers stay float because of it."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from pycocoevalcap.cider.cider import Cider
from tfsparsecap_export.caption_files import quality
from tfsparsecap_export.caption_files.quality import CaptionedSamples, Quality, choose_float_layers

from tfsparsecap.captioning.inference.bundle import TFLiteCaptioner, read_bundle
from tfsparsecap.captioning.inference.confidence import Calibration, is_good

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def validation(exported, images):
    """The references are the captions of the float file, so that it has the highest possible CIDEr."""
    captioner = TFLiteCaptioner(exported("blocks", "dense")[0])
    references = [[captioner.caption(image)[0][0]] for image in images]
    return CaptionedSamples([{"image": image[None]} for image in images], references, captioner.text)


def test_cider_is_pycocoevalcaps(exported, validation, images):
    path, _ = exported("blocks", "int8")
    captioner = TFLiteCaptioner(path)
    captions = {i: [captioner.caption(image)[0][0]] for i, image in enumerate(images)}
    references = {i: list(texts) for i, texts in enumerate(validation.references)}
    expected, of_images = Cider().compute_score(references, captions)
    np.testing.assert_allclose(quality.ciders(path.read_bytes(), validation), of_images)
    assert expected > 0


def test_confidence_is_calibrated_on_the_captions_of_the_file(exported, validation):
    path, _ = exported("blocks", "int8")
    captioner = TFLiteCaptioner(path)
    references = [[""] if number % 2 else texts for number, texts in enumerate(validation.references)]
    calibration = quality.calibrate_confidence(
        path.read_bytes(), CaptionedSamples(validation.samples, references, captioner.text), end_id=2
    )
    captions = [captioner.token_ids(sample["image"][0]) for sample in validation.samples]
    lengths = [list(ids[0]).index(2) + 1 if 2 in ids[0] else len(ids[0]) for ids, _ in captions]
    good = [
        is_good(captioner.text(ids[0]), texts) for (ids, _), texts in zip(captions, references, strict=True)
    ]
    assert calibration == Calibration.fit([float(scores[0]) for _, scores in captions], lengths, good)
    assert calibration.images == len(captions) and 0 < calibration.good <= 0.5


def chosen(monkeypatch, costs, **options):
    """Runs `choose_float_layers` with layers that cost each of two images some CIDEr while they are int8."""
    monkeypatch.setattr(quality, "ciders", lambda content, validation, *_: content)

    def encode(keep_float):
        layers = [SimpleNamespace(name=name, is_float=name in keep_float) for name in costs]
        return np.ones(2) - sum(np.array(costs[layer.name]) for layer in layers if not layer.is_float), layers

    references = [["a dog"], ["a cat"]]
    return choose_float_layers(encode, np.ones(2), CaptionedSamples([{}] * 2, references, str), **options)


@pytest.mark.parametrize(
    ("costs", "options", "kept", "loss"),
    [
        ({"a": (0.0, 0.2)}, {}, (), 0.1),  # the standard error of the mean is 0.1
        ({"a": (0.1, 0.2)}, {}, ("a",), 0),
        ({"a": (0.004, 0.004), "b": (0.005, 0.005)}, {}, (), 0.009),
        ({"a": (0.02,) * 2, "b": (0.002,) * 2, "c": (0.05,) * 2, "d": (0.003,) * 2}, {}, ("c", "a"), 0.005),
        ({"a": (0.02, 0.02), "b": (0.0, 0.0)}, {"keep_float": ["b"]}, ("b", "a"), 0),
        ({"a": (0.5, 0.5), "b": (0.4, 0.4)}, {}, ("a", "b"), 0),
    ],
)
def test_the_layers_that_cost_most_stay_float_until_the_loss_is_small(
    monkeypatch, costs, options, kept, loss
):
    choice = chosen(monkeypatch, costs, **options)
    assert (choice.kept_float, choice.loss) == (kept, pytest.approx(loss))
    assert Quality(3, 0.0, 0.0).loss == 0.0


def test_the_activations_of_an_encoder_become_float_before_its_weights(monkeypatch):
    variants = {"encoder/activations": 0.5, "encoder": 0.8, "": 1.0}

    def encode(float_names):
        name = next(name for name in variants if name not in float_names)
        return name, [SimpleNamespace(name=name, is_float=False)] if name else []

    monkeypatch.setattr(
        quality, "ciders", lambda content, validation, *_: variants[content] + np.array([0, 0.001, 0, 0.001])
    )
    samples = CaptionedSamples([{}] * 4, [["a dog"], ["a cat"], ["a bus"], ["a boat"]], str)
    choice = choose_float_layers(encode, "", samples)
    assert choice.kept_float == ("encoder/activations", "encoder") and choice.loss == 0.0


def test_without_a_cider_nothing_is_captioned_and_the_reason_is_reported(monkeypatch):
    monkeypatch.setattr(quality, "ciders", lambda content, validation, *_: pytest.fail("it was captioned"))
    single_image = CaptionedSamples([{}], [["a dog"]], str)
    int8_layer = SimpleNamespace(name="lstm", is_float=False)
    choice = choose_float_layers(
        lambda float_names: (b"", [int8_layer]), b"", single_image, keep_float=["output"]
    )
    assert choice.float_cider is choice.cider is None
    assert choice.kept_float == ("output",) and choice.loss == 0.0
    assert "here all images (1) have the same" in choice.not_computed
    described = choice.as_dict()
    assert described == {"images": 1, "kept_float": ["output"], "not_computed": choice.not_computed}


def test_an_export_with_validation_images_has_an_int8_encoder_and_reports_the_cost(
    tmp_path, blocks_captioner, export_options, validation, cached_export
):
    path = tmp_path / "a.tflite"
    report = cached_export(
        blocks_captioner, path, "int8", **export_options, validation=validation, keep_float=["output"]
    )
    float_names = [layer.name for layer in report.layers if layer.is_float]
    assert any("output" in name for name in float_names) and len(float_names) < len(report.layers)
    assert report.quality.images == len(validation.samples)
    assert not report.quality.too_much or report.quality.kept_float
    encoders = {layer.name for layer in report.layers if layer.name.startswith("encoder")}
    assert len(encoders) == ("encoder" not in report.quality.kept_float)
    assert quality.ciders(path.read_bytes(), validation).mean() == pytest.approx(report.quality.cider)
    described = read_bundle(path)[0]["int8"]
    assert described == report.quality.as_dict() and described["cider"] == report.quality.cider
    assert any("validation images" in sentence for sentence in report.sentences())
    assert not any("-0.00%" in sentence for sentence in report.sentences())


def test_a_single_validation_image_has_no_cider_and_the_report_explains_why(
    tmp_path, blocks_captioner, export_options, validation, cached_export
):
    path = tmp_path / "a.tflite"
    single_image = CaptionedSamples(validation.samples[:1], validation.references[:1], validation.to_text)
    report = cached_export(blocks_captioner, path, "int8", **export_options, validation=single_image)
    (sentence,) = [text for text in report.sentences() if "CIDEr due to int8" in text]
    assert report.quality.not_computed in sentence
    assert not any("0.0000" in text for text in report.sentences())
    assert read_bundle(path)[0]["int8"].keys() == {"images", "kept_float", "not_computed"}
    json.dumps(report.as_dict()["quality"])


def test_float_formats_measure_nothing(tmp_path, blocks_captioner, export_options, validation, cached_export):
    report = cached_export(
        blocks_captioner, tmp_path / "a.tflite", "fast", **export_options, validation=validation
    )
    assert report.quality is None and np.all([layer.name != "encoder" for layer in report.layers])
