"""Files side by side. Times are not compared: this machine may be busy."""

import json

import pytest
from PIL import Image
from tfsparsecap_export import benchmark, export_model

from tfsparsecap.errors import InputError


@pytest.fixture(scope="module")
def files(exported):
    return [exported("blocks", "dense")[0], exported("blocks", "auto")[0]]


def test_ratios_are_to_the_first_file(files):
    first, second = benchmark.measure(files, runs=3)
    assert (first.speedup, first.size_ratio) == (1.0, 1.0)
    assert second.size_ratio == pytest.approx(files[0].stat().st_size / files[1].stat().st_size)
    assert second.speedup == pytest.approx(first.ms / second.ms)
    assert first.fastest_ms <= first.ms <= first.slowest_ms
    assert 1 <= first.words <= 6


def test_command_prints_a_table_or_json(files, capsys):
    arguments = [*map(str, files), "--runs", "2"]
    benchmark.main(arguments)
    assert "smaller" in capsys.readouterr().out
    benchmark.main([*arguments, "--json"])
    results = json.loads(capsys.readouterr().out)
    assert [result["path"] for result in results] == list(map(str, files))


def test_pictures_can_be_given(files, tmp_path):
    Image.new("RGB", (40, 30), "red").save(tmp_path / "red.png")
    (only,) = benchmark.measure(files[:1], runs=2, images=[tmp_path / "red.png"])
    assert only.ms > 0


def test_files_with_other_inputs_are_not_compared(files, tmp_path):
    import keras

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    export_model(model, tmp_path / "other.tflite")
    with pytest.raises(InputError, match=r"other\.tflite takes .* compare files with the same inputs"):
        benchmark.measure([files[0], tmp_path / "other.tflite"])
    with pytest.raises(InputError, match="no image"):
        benchmark.measure([tmp_path / "other.tflite"], images=[tmp_path / "red.png"])


def test_what_cannot_be_measured_is_said(files, tmp_path):
    with pytest.raises(InputError, match="at least 1"):
        benchmark.measure(files, runs=0)
    with pytest.raises(InputError, match="cannot read"):
        benchmark.measure([tmp_path / "absent.tflite"])
    text = tmp_path / "notes.tflite"
    text.write_text("not a model, a text\n")
    with pytest.raises(InputError, match=r"no \.tflite file"):
        benchmark.measure([text])
    cut = tmp_path / "cut.tflite"
    cut.write_bytes(files[0].read_bytes()[:5000])
    with pytest.raises(InputError, match="cannot load"):
        benchmark.measure([cut])
