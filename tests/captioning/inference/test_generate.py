"""`generate`: every kind of image, beam search and sampling, runs and exported files."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tfsparsecap.captioning.inference import load
from tfsparsecap.captioning.inference.generate import Caption, CaptionGenerator, Captions, stacked_inputs
from tfsparsecap.errors import InputError


@pytest.fixture(scope="module")
def run(tiny_run):
    return load(tiny_run)


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    """A folder of three images of different sizes and modes, and a file that is not an image."""
    folder, random = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    Image.fromarray(random.integers(0, 255, (40, 60, 3), np.uint8)).save(folder / "a.jpg")
    Image.fromarray(random.integers(0, 255, (9, 9), np.uint8)).save(folder / "b.png")
    Image.fromarray(random.integers(0, 255, (50, 30, 4), np.uint8)).save(folder / "c.PNG")
    (folder / "notes.txt").write_text("not an image")
    return folder


class Inspect(CaptionGenerator):
    """Captions an image by its inputs, and keeps the sizes of the batches."""

    label, image_size, input_names, feature_size, max_regions = "it", 8, ("image",), None, 3
    batch_size = 2

    def __init__(self, **attributes):
        self.batches = []
        self.__dict__.update(attributes)

    def search(self, beam=None, samples=None, **sampling):
        self.options = (beam, samples, sampling)
        return self._captions

    def _captions(self, batch):
        self.batches.append(len(batch))
        shapes = [{name: value.shape for name, value in inputs.items()} for inputs in batch]
        return [Captions([Caption(str(shape), -1.0)]) for shape in shapes]


REGIONS = {"image_size": None, "feature_size": 5, "input_names": ("features", "boxes", "mask")}


def test_captions_print_as_text_with_scores():
    captions = Captions([Caption("a dog", -1.25), Caption("a cat", -12.5)], "a.jpg")
    assert str(captions[0]) == "a dog" and captions[0].score == -1.25
    assert str(captions) == "  -1.250  a dog\n -12.500  a cat"
    assert repr(captions) == "[Caption('a dog', -1.250), Caption('a cat', -12.500)]"
    assert captions.objects == () and str(Captions(captions, objects=(("dog", 0.9),))) == str(captions)


@pytest.mark.slow
def test_all_forms_of_an_image_give_the_same_caption(run, photos):
    path = photos / "b.png"
    pixels = np.array(Image.open(path).convert("RGB"))
    expected = run.generate(path)
    assert isinstance(expected, Captions) and expected.image == str(path) and len(expected) == 1
    for image in (str(path), Image.open(path), pixels):
        assert run.generate(image) == expected
    for images in ([path, Image.open(path)], np.stack([pixels, pixels]), (pixels for _ in range(2))):
        first, second = run.generate(images)
        assert first == second
        assert first[0].text == expected[0].text
        assert first[0].score == pytest.approx(expected[0].score, abs=1e-4)


def test_a_folder_is_captioned_in_batches_in_order_of_names(photos):
    captioner = Inspect()
    results = captioner.generate(photos)
    assert [captions.image for captions in results] == [str(photos / n) for n in ("a.jpg", "b.png", "c.PNG")]
    assert {str(captions[0]) for captions in results} == {"{'image': (8, 8, 3)}"}
    assert captioner.batches == [2, 1]
    assert len(captioner.generate([photos, photos / "a.jpg"])) == 4


def test_hidden_files_and_folders_in_a_folder_are_not_captioned(photos, tmp_path):
    for name in ("._a.jpg", ".b.png"):
        (tmp_path / name).write_bytes(b"metadata")
    (tmp_path / "2024").mkdir()
    (captions,) = Inspect().stream([tmp_path])
    assert "there are no images in the folder" in str(captions.error)
    assert str(captions.error).endswith(f"its folders are not searched: give them, such as {tmp_path}/2024")
    Image.new("RGB", (9, 9)).save(tmp_path / "c.png")
    (captions,) = Inspect().stream([tmp_path])
    assert captions.image == str(tmp_path / "c.png") and captions.error is None


def test_images_of_unsupported_formats_in_a_folder_are_reported(tmp_path):
    for name in ("a.jpg", "b.JFIF"):
        Image.new("RGB", (9, 9)).save(tmp_path / name, "JPEG")
    (tmp_path / "c.HEIC").write_bytes(b"\0\0\0\x18ftypheic")
    (tmp_path / "notes.txt").write_text("not an image")
    results = list(Inspect().stream(tmp_path))
    assert [captions.image for captions in results] == [
        str(tmp_path / n) for n in ("a.jpg", "b.JFIF", "c.HEIC")
    ]
    assert [captions.error is None for captions in results] == [True, True, False]
    assert "is not an image in a supported format" in str(results[2].error)


def test_unreadable_images_stop_generate_but_not_stream(photos):
    images = [photos / "a.jpg", photos / "notes.txt", photos / "b.png"]
    with pytest.raises(InputError, match=r"notes\.txt is (no|not an) image"):
        Inspect().generate(images)
    results = list(Inspect().stream(images))
    assert [captions.error is None for captions in results] == [True, False, True]
    assert [len(captions) for captions in results] == [1, 0, 1] and results[1].image.endswith("notes.txt")


def test_wider_beams_are_sorted_and_no_worse(run, photos):
    run.change_search(plain=True)  # otherwise captions are ranked with a length penalty
    try:
        captions = run.generate(photos / "a.jpg", beam=3)
        scores = [caption.score for caption in captions]
        assert len(captions) == 3 and scores == sorted(scores, reverse=True)
        assert run.generate(photos / "a.jpg")[0].score <= scores[0] + 1e-5
    finally:
        run.change_search(plain=False)


@pytest.mark.slow
def test_sampling_repeats_with_the_same_seed(run, photos):
    options = {"samples": 4, "temperature": 2.0, "top_k": 9, "top_p": 0.99}
    first, second = (run.generate(photos / "a.jpg", seed=3, **options) for _ in range(2))
    assert first == second and len(first) == 4
    assert run.generate(photos / "a.jpg", seed=4, **options) != first


def test_region_features_are_given_as_arrays_or_as_a_folder_and_ids(tmp_path):
    random, captioner = np.random.default_rng(0), Inspect(**REGIONS)
    for name, width in (("cocobu_att", 5), ("cocobu_box_relative", 4)):
        (tmp_path / name).mkdir()
        for image_id, regions in (("7", 2), ("8", 9)):
            values = np.sort(random.random((regions, width)).astype("float32"))
            np.save(tmp_path / name / f"{image_id}.npy", values)
    features = np.zeros((9, 5), "float64")
    assert str(captioner.generate(features)[0]) == "{'features': (3, 5)}"  # at most max_regions
    assert len(captioner.generate(np.zeros((4, 2, 5)))) == 4
    expected = "{'features': (2, 5), 'boxes': (2, 4)}"
    image = {"features": features[:2], "boxes": np.zeros((2, 4)), "pooled": np.zeros(5)}
    assert str(captioner.generate(image)[0]) == expected
    for folder in (tmp_path, tmp_path / "cocobu_att"):
        assert str(captioner.generate("7", features=folder)[0]) == expected
        results = list(captioner.stream(["8", "7", "x"], features=folder))
        assert [captions.error is None for captions in results] == [True, True, False]
    for name in ("cocobu_att", "cocobu_box_relative"):
        (tmp_path / name / "sub").mkdir()
        np.save(tmp_path / name / "sub" / "7.npy", np.load(tmp_path / name / "8.npy"))
    for source in ("sub/7", str(tmp_path / "cocobu_att" / "sub" / "7.npy")):
        shapes = str(captioner.generate(source, features=tmp_path)[0])
        assert shapes == "{'features': (3, 5), 'boxes': (3, 4)}"
    with pytest.raises(InputError, match="there is no folder"):
        captioner.generate("7", features=tmp_path / "none")


def test_batches_of_images_with_different_numbers_of_regions_are_padded():
    rows = [{"features": np.ones((n, 2)), "boxes": np.ones((n, 4)), "pooled": np.ones(2)} for n in (1, 3)]
    batch = stacked_inputs(rows)
    assert batch["mask"].tolist() == [[True, False, False], [True, True, True]]
    assert (
        batch["features"].sum() == 8 and batch["boxes"].shape == (2, 3, 4) and batch["pooled"].shape == (2, 2)
    )
    assert "mask" not in stacked_inputs(rows[:1])
    with pytest.raises(InputError, match="the images have different inputs"):
        stacked_inputs([rows[0], {"features": np.ones((1, 2))}])


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (np.zeros((4, 4, 3), "float32"), r"it takes images, not an array float32 \[4, 4, 3\]"),
        (np.zeros((4, 4), "uint8"), r"it takes images, not an array uint8 \[4, 4\]"),
        (Image.new("F", (4, 4)), r"cannot be read \(floating-point"),
        (np.zeros((0, 4, 3), np.uint8), r"cannot be read \(it has no pixels"),
        ([[1, 2], 3], r"it takes images, not \[1, 2\]"),
        (7, "it takes images, not 7: give a path, a PIL image"),
        ({"features": np.zeros((2, 5))}, r"it takes images, not features: an array float64"),
        ("absent.jpg", "there is no image absent.jpg"),
    ],
)
def test_values_that_are_not_images_are_refused(image, message):
    with pytest.raises(InputError, match=message):
        Inspect().generate(image)


@pytest.mark.parametrize(
    "image",
    [
        "a.jpg",
        np.zeros((2, 4)),
        np.zeros((0, 5)),
        {"boxes": np.zeros((2, 4))},
        {"features": np.zeros((2, 5)), "boxes": np.zeros((3, 4))},
        {"features": np.array([["x"] * 5])},
    ],
)
def test_values_that_are_not_region_features_are_refused(image):
    with pytest.raises(InputError, match=r"it takes region features, float \[regions, 5\]"):
        Inspect(**REGIONS).generate(image)


@pytest.mark.parametrize(
    ("image", "name"),
    [
        (np.array([[0.0] * 5, [np.nan] * 5]), "features"),
        ({"features": np.array([[0.0] * 5, [1e300] * 5])}, "features"),
        ({"features": np.zeros((2, 5)), "boxes": np.array([[0.0] * 4, [np.inf] * 4])}, "boxes"),
    ],
)
def test_region_features_that_are_not_finite_are_refused(image, name):
    with pytest.raises(InputError, match=f"the array '{name}' has a number in row 1 that is not finite"):
        Inspect(**REGIONS).generate(image)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam": 0}, "beam is 0"),
        ({"beam": 2, "samples": 2}, "exclude each other"),
        ({"top_k": 3}, "top_k is an option of sampling"),
        ({"seed": 0}, "seed is an option of sampling"),
        ({"features": "folder"}, "it takes images, not region features"),
    ],
)
def test_wrong_options_are_refused(photos, options, message):
    with pytest.raises(InputError, match=message):
        Inspect().generate(photos / "a.jpg", **options)


def test_paths_that_are_not_captioners_are_refused(tmp_path):
    with pytest.raises(InputError, match="No such file or directory; give a run folder"):
        load(tmp_path / "absent")
    (tmp_path / "a.jpg").write_text("x")
    with pytest.raises(InputError, match=r"is not a \.tflite file"):
        load(tmp_path / "a.jpg")


@pytest.mark.slow
def test_run_and_exported_file_give_the_same_captions(run, photos, tmp_path):
    export = pytest.importorskip("tfsparsecap_export")
    length = run.config.data.max_length
    search = run.config.decoding.search_options(run.config.data.kind)
    captions = export.CaptionOptions(beam=2, max_length=length, tokenizer=run.tokenizer, search=search)
    export.export_model(run.captioner, tmp_path / "a.tflite", "dense", captions=captions)
    exported = load(tmp_path / "a.tflite")
    for ours, theirs in zip(exported.generate(photos), run.generate(photos, beam=2), strict=True):
        assert [str(caption) for caption in ours] == [str(caption) for caption in theirs]
        np.testing.assert_allclose([c.score for c in ours], [c.score for c in theirs], atol=1e-3)
    with pytest.raises(InputError, match="has a fixed beam of 2, not 3: leave it out"):
        exported.generate(photos, beam=3)
    with pytest.raises(InputError, match="only has its beam search: give the run folder to sample"):
        exported.generate(photos, samples=3)
