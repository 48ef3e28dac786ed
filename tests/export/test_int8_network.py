"""The choice between int8 weights and int8 activations, and files of a network with either."""

import keras
import numpy as np
import pytest
from tfsparsecap_export import contents_tables, export_model, int8_network
from tfsparsecap_export.encode import encodings, int8_activations
from tfsparsecap_export.encode.costs import kernel_costs
from tfsparsecap_export.flatbuffer.contents import read_contents
from tfsparsecap_export.verify import outputs
from tfsparsecap_export.verify.outputs import DoesNotRun, OutputsDiffer

from tfsparsecap.errors import InputError

WEIGHTS = (b"weights", [])
ARM64 = kernel_costs("arm64")


def expected(milliseconds):
    """Expects these milliseconds with int8 weights, and with int8 activations."""
    times = iter(milliseconds)
    return lambda content, costs: next(times)


@pytest.fixture
def choose(monkeypatch):
    """`choose(error)`: a file is refused if `error(its content)` is above 0.1."""

    def quantize(prepared, floats, keep_zeros):
        return b"%d floats" % floats, []

    def run(error, *, milliseconds=(2.0, 1.0), quantize=quantize, activations=True):
        def verify(content):
            if error(content) > 0.1:
                raise OutputsDiffer(error(content), "the largest output")

        monkeypatch.setattr(int8_activations, "quantized_network", quantize)
        monkeypatch.setattr(
            int8_activations,
            "prepare",
            lambda dense, rounded, samples: int8_activations.Prepared(b"", b"", rounded, (), 1),
        )
        monkeypatch.setattr(int8_network, "network_ms", expected(milliseconds))
        return int8_network.choose_network(
            b"dense",
            WEIGHTS,
            dict.fromkeys(range(9)),
            encode=lambda network: network[0],
            verify=verify,
            calibration=[{}],
            costs=ARM64,
            activations=activations,
            keep_zeros=False,
        )

    return run


#: Errors of files with int8 weights, and with the activations of so many layers left float.
DECLINING = {b"weights": 0.01, b"0 floats": 0.4, b"1 floats": 0.3, b"2 floats": 0.2}


def fail(content):
    if content != b"weights":
        raise DoesNotRun(RuntimeError("div.cc: data[i] was zero."))
    return 0.01


def refuse(*arguments, **options):
    raise int8_activations.CannotQuantize("the network has loops")


@pytest.mark.parametrize(
    ("error", "options", "network", "note"),
    [
        (lambda content: 0.05, {}, (b"0 floats", []), ""),
        (lambda content: 0.05, {"activations": False}, WEIGHTS, ""),
        (
            lambda content: DECLINING.get(content, 0.05),
            {},
            (b"4 floats", []),
            "The activations of 4 of 9 layers stay float: int8 would change outputs by 40.0% of the largest",
        ),
        (
            lambda content: 0.01 if content == b"weights" else 0.2,
            {},
            WEIGHTS,
            "Activations stay float: int8 changes outputs by 20.0% of the largest output.",
        ),
        (
            lambda content: 0.5,
            {},
            None,
            "Convolutions stay float: int8 changes outputs by 50.0% of the largest output.",
        ),
        (
            lambda content: 0.01,
            {"milliseconds": (1.0, 1.0)},
            WEIGHTS,
            "Activations stay float: the file would take 1 ms on arm64 with int8 activations, 1 ms without.",
        ),
        (fail, {}, WEIGHTS, "Activations stay float: the runtime fails (div.cc: data[i] was zero)."),
        (
            lambda content: 0.01,
            {"quantize": refuse},
            WEIGHTS,
            "Activations stay float: the network has loops.",
        ),
    ],
)
def test_the_fastest_network_with_similar_outputs_is_chosen(choose, error, options, network, note):
    choice, notes = choose(error, **options)
    assert choice == network
    assert "".join(notes).startswith(note) and len(notes) == bool(note)


@pytest.fixture(scope="module")
def network():
    """A convolutional network, and inputs; most weights of one of its convolutions are zero."""
    keras.utils.set_random_seed(5)
    model = keras.Sequential(
        [
            keras.Input((10, 10, 16), name="image"),
            keras.layers.Conv2D(128, 3, activation="relu"),
            keras.layers.Conv2D(160, 1, activation="relu", name="pruned"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(128, name="classes"),
        ]
    )
    random = np.random.default_rng(5)
    kernel = model.get_layer("pruned").kernel
    kernel.assign(np.asarray(kernel) * (random.random(kernel.shape) < 0.1))
    return model, [{"image": random.normal(size=(1, 10, 10, 16)).astype(np.float32)} for _ in range(6)]


def encodings_of(report):
    return sorted(layer.encoding for layer in report.layers)


@pytest.mark.slow
def test_convolutional_networks_become_int8_with_samples(network, tmp_path, check_outputs, cached_export):
    model, samples = network
    path = tmp_path / "a.tflite"
    dense = cached_export(model, path, "dense", samples=samples)
    floats = cached_export(model, path, samples=samples[:1])
    assert encodings_of(floats) == [encodings.FLOAT16, encodings.FLOAT16, encodings.SPARSE16]
    (note,) = floats.notes
    assert note == "Convolutions stay float without samples: give two or more to store them as int8."
    float_report = cached_export(model, path, samples=samples, keep_float=["convolutions"])
    assert encodings_of(float_report) == encodings_of(floats)
    kernels = [np.asarray(weight) for weight in model.weights if weight.ndim > 1]
    zeros = 1 - sum(map(np.count_nonzero, kernels)) / sum(kernel.size for kernel in kernels)
    expected = np.asarray(model(samples[1]["image"]))
    for keep_float, expanded in ([], ()), (["activations"], ("DEQUANTIZE",)):
        report = cached_export(model, path, samples=samples, keep_float=keep_float)
        assert encodings_of(report) == [encodings.INT8, encodings.INT8, encodings.SPARSE_INT8]
        assert all(("int8 activations" in layer.reason) != bool(expanded) for layer in report.layers)
        assert not report.notes and 0 < report.verification.rms_error < 0.1
        assert report.bytes < 0.3 * dense.bytes and report.sparsity == pytest.approx(zeros)
        shown = contents_tables.as_dict(read_contents(path))
        assert not shown["warnings"]
        stored = [(layer["role"], layer["stored"], layer["behind"]) for layer in shown["layers"]]
        assert sorted(stored) == [
            ("convolution", "int8 per channel", expanded),
            ("convolution", "sparse int8", ("DENSIFY", *expanded)),
            ("fully connected", "int8 per channel", expanded),
        ]
        (pruned,) = [layer["nonzeros"] for layer in shown["layers"] if "sparse" in layer["stored"]]
        (nonzeros,) = [layer.nonzeros for layer in report.layers if layer.encoding == encodings.SPARSE_INT8]
        assert 0.98 * nonzeros < pruned <= nonzeros  # some weights are rounded to zero
        check_outputs(path.read_bytes(), samples[1], expected, 0.03 if expanded else 0.1)


def test_samples_without_differences_calibrate_nothing(network, tmp_path):
    model, samples = network
    zeros = np.zeros((4, *samples[0]["image"].shape[1:]), np.float32)
    report = export_model(model, tmp_path / "a.tflite", samples=zeros)
    assert any("all the same number" in note for note in report.notes)
    assert all(layer.is_float for layer in report.layers if layer.role == "convolution")
    assert export_model(model, tmp_path / "b.tflite", inputs=zeros).verification.source == "synthetic inputs"


def test_samples_that_do_not_suit_the_model_are_refused(network, tmp_path):
    model, samples = network
    image = samples[0]["image"]
    for wrong_samples, message in (
        ([], "samples are empty"),
        ([{"picture": image}], r"sample 0 is \['picture'\]: give a dictionary"),
        (7, "samples is int: give a list of dictionaries"),
        ({"picture": image}, r"sample 0 is \['picture'\]: give a dictionary"),
        ([[1.0]], "sample 0 is float: give a dictionary"),
        (iter(()), "samples are empty"),
        (image[0], r"image of sample 0 is float32 \[10, 10, 16\]: give"),
        (
            [{"image": image[0]}],
            r"image of sample 0 is float32 \[10, 10, 16\]: give float32 \[1, 10, 10, 16\]",
        ),
        ([{"image": image.astype(np.complex64)}], "is complex64"),
        ([*samples[:1], {"image": np.full_like(image, np.nan)}], "image of sample 1 contains NaN"),
    ):
        with pytest.raises(InputError, match=message):
            export_model(model, tmp_path / "a.tflite", samples=wrong_samples)
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
def test_the_inputs_for_the_check_are_not_those_of_the_calibration(network, tmp_path, monkeypatch):
    model, samples = network

    def recorded(dense, weights, rounded, *, verify, calibration, **options):
        used.update(calibration=calibration, check=verify.keywords["samples"])
        return None, []

    used = {}
    monkeypatch.setattr(int8_network, "choose_network", recorded)
    export_model(model, tmp_path / "a.tflite", samples=samples)
    for name, expected in (("calibration", samples[::2]), ("check", samples[1::2])):
        for mine, theirs in zip(used[name], expected, strict=True):
            np.testing.assert_array_equal(mine["image"], theirs["image"])


@pytest.mark.slow
def test_activations_that_are_always_zero_are_int8_too(network, tmp_path):
    model, samples = keras.models.clone_model(network[0]), network[1]
    model.set_weights(network[0].get_weights())
    bias = model.layers[0].bias
    bias.assign(np.full(bias.shape, -1e3))
    report = export_model(model, tmp_path / "a.tflite", samples=samples)
    assert any("int8 activations" in layer.reason for layer in report.layers) and not report.notes


@pytest.mark.slow
def test_int8_that_changes_outputs_too_much_is_refused(network, tmp_path, monkeypatch, cached_export):
    model, samples = network
    monkeypatch.setattr(outputs, "INT8_RMS_ERROR", 1e-6)
    report = cached_export(model, tmp_path / "a.tflite", samples=samples)
    assert encodings_of(report) == [encodings.FLOAT16, encodings.FLOAT16, encodings.SPARSE16]
    assert "Convolutions stay float: int8 changes outputs by" in report.notes[0]
    monkeypatch.setattr(outputs, "ROUNDED_OUTPUT_ERROR", 1e-9)
    report = cached_export(model, tmp_path / "a.tflite", samples=samples)
    assert encodings_of(report) == [encodings.DENSE, encodings.DENSE, encodings.SPARSE32]
    assert "Rounding weights to float16 changed outputs" in report.notes[1]
