"""python -m tfsparsecap_export.benchmark: tables, JSON, and arguments that do not fit together."""

import json

import numpy as np
import pytest
from tfsparsecap_export import benchmark
from tfsparsecap_export.encode import encodings

from benchmarks import one_layer
from tfsparsecap.errors import InputError

pytestmark = pytest.mark.slow

QUICK = ["--runs", "2", "--inputs", "2"]


@pytest.fixture(scope="module")
def files(exported):
    return [str(exported("blocks", format)[0]) for format in ("dense", "auto")]


def test_table_of_two_files(files, capsys):
    benchmark.main([*files, *QUICK])
    shown = capsys.readouterr().out
    assert "smaller" in shown and "ms/word" in shown and "of 2" in shown and "1 CPU thread(s)" in shown


def test_json_has_all_figures_of_each_file(files, capsys):
    benchmark.main([*files, *QUICK, "--json", "--threads", "2"])
    results = json.loads(capsys.readouterr().out)
    assert [result["path"] for result in results] == files
    figures = {"bytes", "ms", "speedup", "words", "ms_a_word", "peak_bytes", "load_ms", "same_captions"}
    assert figures <= results[1].keys()


@pytest.mark.parametrize(
    ("arguments", "message"), [([], "no file is given"), (["absent.tflite"], "cannot read absent.tflite")]
)
def test_arguments_that_do_not_fit_together_are_an_input_error(arguments, message):
    with pytest.raises(InputError, match=message):
        benchmark.main(arguments)


def test_files_without_a_digest_are_compared(capsys, tmp_path):
    file = tmp_path / "network.tflite"  # not a captioner
    file.write_bytes(one_layer.fully_connected([np.eye(16, dtype=np.float32)], encodings.DENSE, 1))
    benchmark.main([str(file), str(file), *QUICK])
    assert capsys.readouterr().out.count("network.tflite") == 2
