"""Reading runs for a report; damaged files are errors."""

import json

import pytest

from tfsparsecap.captioning.html_report.compared_runs import read_runs
from tfsparsecap.captioning.settings.config_files import save_config
from tfsparsecap.captioning.settings.schema import Config
from tfsparsecap.errors import InputError

HISTORY = "epoch,phase,loss,sparsity,validation_CIDEr\n1,train,2.5,0.5,\n2,train,1e-05,0.9,0.25\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.yaml").write_text(save_config(Config()))
    (tmp_path / "model.keras").write_text("")
    return tmp_path


def test_existing_files_are_read_and_missing_ones_named(folder):
    (folder / "history.csv").write_text(HISTORY)
    (folder / "captions_test.json").write_text('[{"image_id": 7, "caption": "a\\n dog"}]')
    (run,) = read_runs([folder, folder])
    assert run.history[0] == {"epoch": 1, "loss": 2.5, "sparsity": 0.5}
    assert run.history[1]["loss"] == 1e-5 and run.captions["7"] == ("a dog", [])
    assert run.scores == {} and run.missing == ["has no scores_test.json"]


def test_ids_of_images_are_kept_exactly(folder):
    names = ["a\u00a0b.jpg", "a b.jpg", "a\u2028b.jpg", "caf\udce9.jpg"]
    (folder / "captions_test.json").write_text(json.dumps([{"image_id": n, "caption": "x"} for n in names]))
    (run,) = read_runs([folder])
    assert list(run.captions) == names


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("history.csv", "epoch,loss\n1,much\n", "history.csv"),
        ("history.csv", "epoch,loss\n1,2,3\n", "history.csv"),
        ("history.csv", "epoch,loss\n,2\n", "a row has no epoch"),
        ("history.csv", "epoch,loss,validation_CIDEr\n1,nan,1\n", "0.loss: "),
        ("history.csv", "epoch,loss,validation_CIDEr\n1,2,1e308\n", "0.validation_CIDEr: "),
        ("scores_test.json", '{"CIDEr": ', "scores_test.json"),
        ("scores_test.json", '{"CIDEr": "high"}', "CIDEr: "),
        ("scores_test.json", '{"CIDEr": NaN}', "CIDEr: "),
        ("scores_test.json", f'{{"sparsity": 1{400 * "0"}}}', "sparsity: "),
        ("scores_test.json", "[" * 100_000, "scores_test.json"),
        ("captions_test.json", '[{"image_id": {"a": 1}, "caption": "x"}]', "image_id"),
        ("captions_test.json", '[{"image_id": NaN, "caption": "x"}]', "image_id"),
        (
            "captions_test.json",
            '[{"image_id": 1, "caption": "x"}, {"image_id": "1", "caption": "y"}]',
            "more than one caption",
        ),
        ("captions_test.json", '[{"caption": 3}]', "captions_test.json"),
        ("captions_test.json", b"\xff\xfe\x00", "captions_test.json"),
    ],
)
def test_damaged_files_are_errors(folder, name, content, message):
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=r"^cannot read ") as error:
        read_runs([folder])
    assert message in str(error.value) and len(str(error.value)) < 500
