"""Calibrated confidence, compared with values of scikit-learn 1.9.1 and with counts by hand."""

import numpy as np
import pytest
from PIL import Image, ImageDraw

from tfsparsecap.captioning.captioners import NAMES, captioner_path
from tfsparsecap.captioning.data.images import read_image
from tfsparsecap.captioning.inference.bundle import TFLiteCaptioner
from tfsparsecap.captioning.inference.confidence import (
    LIKELY,
    Calibration,
    caption_length,
    is_good,
    likely_objects,
    reliability,
)
from tfsparsecap.errors import InputError


def captions(count, seed=0, slope=2.0, intercept=3.0):
    """Scores, lengths and whether the captions are good, drawn from a logistic model."""
    random = np.random.default_rng(seed)
    lengths = random.integers(5, 20, count)
    values = random.normal(-1.5, 0.6, count)
    good = random.random(count) < 1 / (1 + np.exp(-(slope * values + intercept)))
    return values * lengths**0.7, lengths, good


@pytest.mark.parametrize(
    ("count", "slope", "intercept"), [(20, 2.340126, 3.067674), (400, 2.160429, 3.183429)]
)
def test_slope_and_intercept_equal_platt_scaling_of_scikit_learn(count, slope, intercept):
    """Expected: minus what sklearn.calibration._sigmoid_calibration(scores / lengths**0.7, good) gives."""
    scores, lengths, good = captions(count)
    calibration = Calibration.fit(scores / lengths**0.7 * 8**0.7, [8] * count, good)  # of equal length
    assert (calibration.slope, calibration.intercept) == pytest.approx((slope, intercept), rel=2e-3)
    assert (calibration.images, calibration.good) == (count, good.mean())


def test_the_model_of_the_data_is_found_and_calibrated_on_other_data():
    calibration = Calibration.fit(*captions(20_000))
    assert (calibration.slope, calibration.tokens, calibration.intercept) == pytest.approx((2, 0, 3), abs=0.2)
    scores, lengths, good = captions(20_000, seed=1)
    confidences = [calibration.probability(*caption) for caption in zip(scores, lengths, strict=True)]
    assert reliability(confidences, good)["error"] < 0.02


def test_objects_and_length_count_and_the_likeliest_object_never_against_a_caption():
    random = np.random.default_rng(3)
    scores, lengths, _ = captions(20_000)
    objects = random.random((len(scores), 3))
    odds = 2 * scores / lengths**0.7 - 0.2 * lengths + 3 * objects.max(1) - 1.5 * objects.sum(1) + 5
    good = random.random(len(scores)) < 1 / (1 + np.exp(-odds))
    calibration = Calibration.fit(scores, lengths, good, objects)
    weights = (
        calibration.slope,
        calibration.tokens,
        calibration.objects,
        calibration.object_count,
        calibration.intercept,
    )
    assert weights == pytest.approx((2, -0.2, 3, -1.5, 5), rel=0.1)
    read = Calibration.from_description({"confidence": calibration.as_dict()})
    assert read.probability(-9, 7, [0.3, 0]) == calibration.probability(-9, 7, [0.3, 0])
    expected = 1 / (1 + np.exp(2 * 9 / 7**0.7 + 0.2 * 7 - 3 * 0.3 + 1.5 * 0.4 - 5))
    assert calibration.probability(-9, 7, [0.3, 0.1]) == pytest.approx(expected, abs=0.05)
    without = Calibration.fit(scores, lengths, good)
    assert without == Calibration.fit(scores, lengths, good, np.zeros((len(scores), 0)))
    assert without.objects == without.object_count == 0
    assert Calibration.fit(scores, lengths, good, 0.4 * objects[:, :1] + 0.5 * ~good[:, None]) == without


@pytest.mark.parametrize(
    ("good", "low", "high"),
    [
        ([True] * 4, 0.8, 0.9),  # (4 + 1) / (4 + 2)
        ([False] * 4, 0.1, 0.2),
        ([False, False, True, True], 0.4, 0.6),  # the wrong way round: no slope
    ],
)
def test_without_evidence_all_captions_have_the_same_confidence(good, low, high):
    calibration = Calibration.fit([-2.0, -3.0, -10.0, -12.0], [8, 8, 8, 8], good)
    assert calibration.probability(-2, 8) == pytest.approx(calibration.probability(-12, 8), abs=1e-6)
    assert low < calibration.probability(-5, 8) < high


@pytest.mark.parametrize(("score", "length"), [(-5.1, 7), (-0.1, 3), (-34.7, 16)])
def test_equal_scores_give_a_confidence_that_can_be_read_again(score, length):
    for noise in (0, 1e-9, 1e-5):
        scores = score + noise * np.arange(30)
        calibration = Calibration.fit(scores, [length] * 30, np.arange(30) > 9)
        assert calibration.slope == 0
        assert calibration.probability(score, length) == pytest.approx(2 / 3, abs=0.03)
        assert Calibration.from_description({"confidence": calibration.as_dict()}).probability(-90, 7) < 0.7


def test_separable_captions_have_a_finite_and_rising_confidence():
    calibration = Calibration.fit([-2.0, -3.0, -10.0, -12.0], [8, 8, 8, 8], [True, True, False, False])
    values = [calibration.probability(score, 8) for score in (-1e9, -30, -12, -10, -3, -2, 0)]
    assert values == sorted(values) and 0 <= values[0] < 0.3 < 0.7 < values[-1] <= 1
    assert Calibration.fit([-2.0], [8], [True]).probability(-2, 8) == pytest.approx(2 / 3)


def test_descriptions_are_read():
    calibration = Calibration.fit(*captions(50))
    read = Calibration.from_description({"confidence": calibration.as_dict()})
    assert read.probability(-9, 7) == calibration.probability(-9, 7)
    earlier = {
        name: value for name, value in calibration.as_dict().items() if name not in ("object_count", "tokens")
    }
    assert Calibration.from_description({"confidence": earlier}).tokens == 0
    assert Calibration.from_description({}) is Calibration.from_description({"confidence": None}) is None
    for damaged in (
        {},
        "0.5",
        {**calibration.as_dict(), "slope": "2"},
        {**calibration.as_dict(), "slope": np.nan},
        {**calibration.as_dict(), "objects": "1"},
        {**calibration.as_dict(), "tokens": None},
    ):
        with pytest.raises(InputError, match="no slope and intercept: export the run again"):
            Calibration.from_description({"confidence": damaged})


def test_lengths_include_the_end_token():
    assert caption_length([5, 6, 2, 0], 2) == 3 and caption_length([5, 6, 7], 2) == 3
    assert caption_length([2, 0], 2) == 1


@pytest.mark.parametrize(
    ("caption", "good"),
    [
        ("a dog runs on the beach", True),  # dog, runs of dog, runs, beach
        ("A dog on the beach.", True),  # one of two
        ("a black dog on the beach", False),  # one of three
        ("a man", False),
        ("the dog dog dog and a beach with a ball", False),  # each word counts once
        ("on the", False),
        ("", False),
    ],
)
def test_good_captions_name_what_people_name(caption, good):
    assert is_good(caption, ["A brown DOG runs over sand.", "the dog is running on it"]) == good


def test_function_words_of_another_language_do_not_count():
    references = ["Der Hund spielt auf einer Wiese."]
    assert is_good("ein Hund mit einem Ball", references, ["ein", "einem", "mit"])  # one of two
    assert not is_good("ein Hund mit einem Ball", references)  # one of five
    assert not is_good("ein Mann auf der Bank", references, ["ein", "auf", "der"])
    assert is_good("ein Mann auf der Bank", ["ein Hund auf der Wiese"], [])  # ein, auf and der


def test_reliability_equals_scikit_learn():
    """Expected: sklearn.calibration.calibration_curve(good, confidences, n_bins=10, strategy="quantile")."""
    random = np.random.default_rng(3)
    confidences = random.random(500)
    good = random.random(500) < confidences**2
    result = reliability(confidences, good)
    share = np.array([0, 0.04, 0.06, 0.1, 0.18, 0.36, 0.5, 0.72, 0.66, 0.9])
    mean = [0.052228, 0.157359, 0.25172, 0.356754, 0.45573, 0.554192, 0.645351, 0.730754, 0.828215, 0.933169]
    expected = np.stack([mean, share, np.full(10, 50)], axis=1)
    assert np.array(result["table"]) == pytest.approx(expected, abs=1e-6)
    assert result["error"] == pytest.approx(np.abs(share - mean).mean(), abs=1e-6)
    assert result["sure"] == np.mean(confidences >= 0.5) and result["good"] == good.mean()
    assert reliability([0.25], [True])["error"] == 0.75


def test_the_error_by_chance_is_that_of_right_confidences():
    random = np.random.default_rng(5)
    confidences = random.uniform(0.2, 0.9, 300)
    runs = [reliability(confidences, random.random(300) < confidences) for _ in range(200)]
    assert np.mean([run["error"] for run in runs]) == pytest.approx(runs[0]["chance"], rel=0.03)


def unlike_photographs(side):
    """Noise, colour gradients, single colours, and pages of text."""
    random = np.random.default_rng(4)
    for _ in range(4):
        yield random.integers(0, 256, (side, side, 3), np.uint8)
        patches = Image.fromarray(random.integers(0, 256, (6, 6, 3), np.uint8))
        yield np.asarray(patches.resize((side, side), Image.Resampling.BICUBIC))
        yield np.full((side, side, 3), random.integers(0, 256, 3), np.uint8)
        page = Image.new("RGB", (side, side), "white")
        for line in range(10, side, 14):
            ImageDraw.Draw(page).text((8, line), "".join(map(chr, random.integers(97, 123, 30))), "black")
        yield np.asarray(page)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "unsure"), zip(NAMES, (14, 12), strict=True))
def test_the_app_is_not_sure_about_images_unlike_photographs(name, unsure, shared):
    folder = shared("data/flickr8k_1k")
    captioner = TFLiteCaptioner(captioner_path(name))
    side = captioner.image_size
    unlike = [captioner.caption(image)[0].confidence for image in unlike_photographs(side)]
    assert len(unlike) == 16 and sum(confidence < 0.5 for confidence in unlike) >= unsure
    names = (folder / "Flickr_8k.testImages.txt").read_text(encoding="utf-8").split()[:40]
    photographs = [
        captioner.caption(read_image(folder / "Images" / name, side))[0].confidence for name in names
    ]
    assert np.mean(photographs) > np.mean(unlike) + 0.15 and max(photographs) > 0.7


def test_likely_objects_come_in_the_order_of_their_probabilities():
    probabilities = np.array([0.25, LIKELY, 0.875, 0.0, LIKELY], "float32")
    expected = (("sofa", 0.875), ("dog", 0.5), ("tv", 0.5))
    assert likely_objects(["cat", "dog", "sofa", "bus", "tv"], probabilities) == expected
    assert all(type(share) is float for _, share in expected)
    assert likely_objects([], np.zeros(0, "float32")) == ()
    with pytest.raises(ValueError, match="zip"):
        likely_objects(["cat"], [0.5, 0.5])
