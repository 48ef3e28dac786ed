"""The command: tables, JSON, the picture, and what does not go together."""

import functools
import json

import pytest
from tfsparsecap_export import benchmark
from tfsparsecap_export.encode.costs import Costs
from tfsparsecap_export.measure import calibrate

from tfsparsecap.errors import InputError


@pytest.fixture(scope="module")
def files(exported):
    return [str(exported("blocks", format)[0]) for format in ("dense", "auto")]


QUICK = ["--runs", "2", "--inputs", "3"]


def test_a_table_is_printed(files, capsys):
    benchmark.main([*files, *QUICK])
    shown = capsys.readouterr().out
    assert "smaller" in shown and "ms/word" in shown and "of 3" in shown
    assert "1 CPU thread(s)" in shown


def test_json_holds_every_figure_of_each_file(files, capsys):
    benchmark.main([*files, *QUICK, "--json", "--threads", "2"])
    results = json.loads(capsys.readouterr().out)
    assert [result["path"] for result in results] == files
    figures = {"bytes", "ms", "speedup", "words", "ms_a_word", "peak_bytes", "load_ms", "same_captions"}
    assert figures <= results[1].keys() and "profile" not in results[1]


def test_profile_and_plot(files, capsys, tmp_path):
    plot = ["--plot", str(tmp_path / "sizes.svg")]
    benchmark.main([*files, *QUICK, "--profile", *plot])
    shown = capsys.readouterr().out
    assert shown.count("in a whole run") == 2 and "XNNPACK" in shown and "FULLY_CONNECTED" in shown
    assert "int8 1x16" in shown and "256 x 160" in shown and " word " in shown
    assert (tmp_path / "sizes.svg").stat().st_size > 1000
    benchmark.main([*files[1:], *QUICK, "--profile", "--json"])
    (result,) = json.loads(capsys.readouterr().out)
    assert {"name", "kernel", "layer", "shape", "stored", "ms"} <= result["profile"]["operations"][0].keys()


def test_calibrate_writes_the_constants_and_shows_them(capsys, tmp_path, monkeypatch):
    tiny = functools.partial(calibrate.calibrate, calibrate.cases(scale=0.03), seconds=0)
    monkeypatch.setattr(calibrate, "calibrate", tiny)
    path = tmp_path / "costs.json"
    benchmark.main(["--calibrate", "--costs", str(path)])
    shown = capsys.readouterr().out
    assert "shipped" in shown and "csr_once" in shown and "half within" in shown and "costs.json" in shown
    Costs.load(path)
    benchmark.main(["--calibrate", "--costs", str(path), "--json"])
    assert json.loads(capsys.readouterr().out) == json.loads(path.read_text())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no file is given"),
        (["--calibrate", "a.tflite"], "measures the machine, not files"),
        (["--calibrate", "--profile"], "measures the machine"),
        (["a.tflite", "--costs", "costs.json"], "give both"),
        (["a.tflite", "--plot", "sizes.txt"], "suffix of a picture"),
        (["absent.tflite"], "cannot read absent.tflite"),
    ],
)
def test_what_does_not_go_together_is_said(arguments, message):
    with pytest.raises(InputError, match=message):
        benchmark.main(arguments)


def test_images_and_made_up_inputs_exclude_each_other(capsys):
    with pytest.raises(SystemExit) as ended:
        benchmark.main(["a.tflite", "--images", "a.png", "--inputs", "3"])
    assert ended.value.code == 2 and "not allowed with" in capsys.readouterr().err
