"""The page of a report: images with unusual names."""

import json
import os

import pytest
from PIL import Image

from tfsparsecap.files import atomic_write
from tfsparsecap.reports.page import make_page
from tfsparsecap.reports.runs import read_runs
from tfsparsecap.settings.files import load_config, save_config

NAMES = ["a\u00a0b.png", "a  b.png", "a\u2028b.png", os.fsdecode(b"caf\xe9.png")]


@pytest.fixture
def run(tmp_path):
    """An unfinished run that has captioned images with special spaces and a byte that is not UTF-8."""
    rows = [{"image": name, "caption": "a dog", "split": "test"} for name in NAMES]
    for name in NAMES:
        Image.new("RGB", (9, 9)).save(tmp_path / name)
    (tmp_path / "captions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    config = load_config(None, ["data.kind=table", f"data.folder={json.dumps(str(tmp_path))}"])
    (tmp_path / "config.yaml").write_text(save_config(config))
    captions = [{"image_id": name, "caption": "a cat", "references": ["a dog"]} for name in NAMES]
    (tmp_path / "captions_test.json").write_text(json.dumps(captions))
    return tmp_path


def test_images_with_unusual_names_are_shown(run):
    html, _ = make_page(read_runs([run]), images=4)
    atomic_write(run / "page.html", html)
    page = (run / "page.html").read_text(encoding="utf-8")
    assert page.count("data:image/jpeg") == 4 and "An image is missing" not in page
    assert page.count("<h3>a b.png</h3>") == 3 and "<h3>caf .png</h3>" in page
