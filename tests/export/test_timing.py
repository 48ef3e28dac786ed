"""Files that take turns: ratios, words, captions, outputs. No times are compared."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from tfsparsecap_export import timing
from tfsparsecap_export.encode import encodings
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.keras_to_tflite.graph import model_graph

from benchmarks import one_layer
from tfsparsecap.captioning.inference.bundle import TFLiteCaptioner
from tfsparsecap.errors import InputError


@pytest.fixture(scope="module")
def files(exported):
    return [exported("blocks", "dense")[0], exported("blocks", "auto")[0]]


@pytest.fixture(scope="module")
def layers(tmp_path_factory):
    """Files of the same matrix as float32 and as int8 blocks."""
    matrix = one_layer.sparse_matrix(np.random.default_rng(0), 48, 64, 0.3, 16)
    folder, paths = tmp_path_factory.mktemp("layers"), []
    for encoding in (encodings.DENSE, encodings.BLOCK16):
        paths.append(folder / f"{len(paths)}.tflite")
        paths[-1].write_bytes(one_layer.fully_connected([matrix], encoding, 2))
    return paths


def test_ratios_are_to_the_first_file(files):
    samples = timing.samples(files, count=4)
    first, second = timing.measure(files, samples, runs=3)
    assert (first.speedup, first.size_ratio, first.inputs, first.same_captions) == (1.0, 1.0, 4, 4)
    assert second.size_ratio == pytest.approx(files[0].stat().st_size / files[1].stat().st_size)
    assert second.speedup == pytest.approx(first.ms / second.ms)
    assert first.fastest_ms <= first.ms <= first.slowest_ms
    assert first.peak_bytes is None or first.peak_bytes > 0


def test_words_and_captions_are_those_of_the_files(files, images):
    samples = [{"image": image[None]} for image in images]
    results = timing.measure(files, samples, runs=len(samples))
    captioners = [TFLiteCaptioner(path) for path in files]
    for captioner, result in zip(captioners, results, strict=True):
        end = captioner.metadata["special_ids"]["end"]
        steps = [timing._steps(captioner.token_ids(p)[0], end) for p in images]
        assert result.words == pytest.approx(np.mean(steps))
        assert result.fastest_ms / 6 <= result.ms_a_word <= result.slowest_ms
        assert result.difference is None
    dense, sparse_file = captioners
    same = [np.array_equal(dense.token_ids(p)[0][0], sparse_file.token_ids(p)[0][0]) for p in images]
    assert results[1].same_captions == sum(same)


def test_the_expected_ratio_counts_all_time_steps(tmp_path, monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    paths = []
    for length in (10, 40):
        model = keras.Sequential([keras.Input((40, 8)), keras.layers.LSTM(64)])
        if length < 40:
            model = keras.Sequential([model.inputs[0], keras.layers.Cropping1D((0, 30)), model.layers[0]])
        paths.append(tmp_path / f"{length}.tflite")
        paths[-1].write_bytes(model_graph(model))
    samples = timing.samples(paths, count=1)
    assert timing.measure(paths, samples, runs=1, trust=True)[1].expected == pytest.approx(0.25, rel=0.05)


@pytest.mark.parametrize(
    ("rows", "end", "steps"),
    [
        ([[5, 6, 2, 0, 0]], 2, 3),
        ([[5, 2, 0, 0, 0], [5, 6, 7, 2, 0]], 2, 4),
        ([[5, 0, 6, 7, 8]], 2, 5),
        ([[5, 2, 0, 0, 0], [0, 0, 0, 0, 0]], 2, 2),
        ([[5, 6, 3, 0, 0]], None, 3),
    ],
)
def test_steps_end_with_the_longest_beam(rows, end, steps):
    assert timing._steps(np.array(rows, np.int32), end) == steps


def test_outputs_of_other_models_are_compared(layers, interpreter):
    samples = timing.samples(layers, count=3)
    first, second = timing.measure(layers, samples, runs=2, trust=True)
    assert (first.difference, first.words, first.same_captions) == (0.0, None, None)
    exact, rounded = (interpreter(path.read_bytes()) for path in layers)
    outputs = [(exact(**sample)["output0"], rounded(**sample)["output0"]) for sample in samples]
    largest = max(np.abs(mine).max() for mine, _ in outputs)
    off = max(np.abs(mine - theirs).max() for mine, theirs in outputs)
    assert second.difference == pytest.approx(off / largest) and 0 < second.difference < 0.05


@pytest.mark.parametrize(
    ("mine", "first", "difference"),
    [
        ([1.0, 2.5], [1.0, 2.0], 0.25),
        ([1.0, np.nan], [1.0, 2.0], np.nan),
        ([1.0, np.nan], [1.0, np.nan], np.nan),
        ([np.inf, 3.0], [np.inf, 2.0], 0.5),
        ([np.inf, 2.0], [1.0, 2.0], np.inf),
        ([True, False], [True, True], 1),
    ],
)
def test_differences_of_nan_and_infinity(mine, first, difference):
    equal = {"y": np.ones(2)}
    outputs = [[{"y": np.array(values)}, equal] for values in (mine, first)]
    np.testing.assert_equal(timing._comparison(*outputs), (None, difference))


def test_samples_are_synthetic_or_images(files, tmp_path):
    Image.new("RGB", (40, 30), "red").save(tmp_path / "red.png")
    (red,) = timing.samples(files, images=[tmp_path / "red.png"])
    assert red["image"].shape == (1, 16, 16, 3) and (red["image"][..., 0] == 255).all()
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"no images in the folder .*empty"):
        timing.samples(files, images=[tmp_path / "empty"])
    for index in range(3):
        Image.new("RGB", (40, 30), "blue").save(tmp_path / "empty" / f"{index}.jpg")
    (tmp_path / "empty" / "notes.txt").write_text("no image")
    assert len(timing.samples(files, images=[tmp_path / "empty", tmp_path / "red.png"], count=2)) == 3
    synthetic = timing.samples(files, count=5)
    assert len(synthetic) == 5 and synthetic[0]["image"].dtype == np.uint8
    with pytest.raises(InputError, match="at least 1"):
        timing.samples(files, count=0)


def test_inputs_and_outputs_with_other_names_are_compared_by_their_shapes(tmp_path):
    """Two files of TensorFlow's converter for one function, whose arguments have other names and order."""
    paths, weights = [tmp_path / "first.tflite", tmp_path / "second.tflite"], np.eye(3, 2, dtype=np.float32)
    for path, names in zip(paths, (("a", "b"), ("z", "c")), strict=True):
        specs = [tf.TensorSpec(shape, name=name) for shape, name in zip(((1, 3), (1, 2)), names, strict=True)]

        @tf.function(input_signature=specs)
        def both(a, b):
            product = tf.matmul(a, weights)
            return {f"{names[0]}_sum": product + 2 * b, f"{names[1]}_first": product[:, :1]}  # noqa: B023

        functions, module = [both.get_concrete_function()], tf.Module()
        converter = tf.lite.TFLiteConverter.from_concrete_functions(functions, module)
        path.write_bytes(converter.convert())
    shapes = timing.same_inputs(paths)
    assert {*shapes.values()} == {((1, 3), "float32"), ((1, 2), "float32")}
    first, second = timing.measure(paths, timing.samples(paths, count=3), runs=1, trust=True)
    assert first.difference == second.difference == 0


@pytest.fixture(scope="module")
def unusable(files, tmp_path_factory):
    """A folder with files that cannot be compared."""
    folder = tmp_path_factory.mktemp("unusable")
    other = one_layer.fully_connected([np.eye(4, dtype=np.float32)], encodings.DENSE, 1)
    model = flatfile.read_model(other)
    model.signatureDefs = model.signatureDefs * 2
    (folder / "other").write_bytes(other)
    (folder / "two").write_bytes(flatfile.write_model(model))
    (folder / "notes").write_text("not a model, a text\n")
    (folder / "cut").write_bytes(files[0].read_bytes()[:5000])
    return folder


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("other", "other has the inputs .* compare files with the same inputs"),
        ("two", "two has 2 signatures"),
        ("absent", "cannot read"),
        ("notes", r"not a \.tflite file"),
        ("cut", "cut is a damaged"),
    ],
)
def test_unusable_files_are_input_errors(files, unusable, name, message):
    with pytest.raises(InputError, match=message):
        timing.measure([files[0], unusable / name], [{}])


def test_unusable_arguments_are_input_errors(files, layers, unusable):
    with pytest.raises(InputError, match=r"0\.tflite has no digest .* --trust"):
        timing.measure(layers, [{}])
    for number in ("runs", "threads"):
        with pytest.raises(InputError, match="at least 1"):
            timing.measure(files, [{}], **{number: 0})
    with pytest.raises(InputError, match="not one square uint8 image"):
        timing.samples([unusable / "other"], images=[unusable / "red.png"])
