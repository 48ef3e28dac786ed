"""Parts of a report: choice of images, images with unusual names, latencies of exported files."""

import json
import os
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from PIL import Image

from tfsparsecap.captioning.html_report import page as page_module
from tfsparsecap.captioning.html_report.compared_runs import ReportRun, read_runs
from tfsparsecap.captioning.html_report.page import (
    chosen_images,
    make_page,
    score_table,
    setting_table,
    weight_distribution,
)
from tfsparsecap.captioning.runs.run_folder import RunFolder
from tfsparsecap.captioning.settings.config_files import load_config, save_config
from tfsparsecap.captioning.settings.schema import Config
from tfsparsecap.core.files import atomic_write

NAMES = ["a\u00a0b.png", "a  b.png", "a\u2028b.png", os.fsdecode(b"caf\xe9.png")]


def captioned(label, ids):
    captions = {name: (f"{label} on {name}", [f"reference of {name}"]) for name in ids}
    return ReportRun(label, RunFolder(label), Config(), captions=captions)


@pytest.mark.parametrize(
    ("number", "expected"), [(0, []), (1, ["0"]), (3, ["0", "3", "6"]), (99, [str(i) for i in range(10)])]
)
def test_images_are_evenly_spaced(number, expected):
    assert chosen_images([captioned("a", map(str, range(10)))], number) == expected


def test_the_best_score_is_bold_once():
    first, second, third = captioned("a", []), captioned("b", []), captioned("<c>", [])
    first.scores = {"CIDEr": 0.51249, "exact_match": 0.0, "sparsity": 0.9}
    second.scores = {"CIDEr": 0.5121, "exact_match": 0.0, "sparsity": 0.0}
    third.scores = {"CIDEr": 0.61}
    rows = score_table([first, second, third])
    assert rows[0] == ["run", "CIDEr", "exact_match", "sparsity"]
    assert rows[1:] == [
        ["a", "0.512", "0.000", "0.900"],
        ["b", "0.512", "0.000", "0.000"],
        ["<c>", "<strong>0.610</strong>", "\N{EN DASH}", "\N{EN DASH}"],
    ]
    page = make_page([first, second, third])
    assert page.count("<strong>") == 1 and "&lt;c&gt;" in page
    assert "<strong>" not in make_page([first]) + make_page([first, second])


def test_scores_that_cannot_be_compared_have_a_note(tmp_path):
    for name, digest, scores in (
        ("a", "1", {"CIDEr": 0.5, "images": 30}),
        ("b", "1", {"CIDEr": 0.6, "images": 30, "tokenizer": "ptb"}),
        ("c", "1", {"CIDEr": 0.7, "images": 30, "tokenizer": "light"}),
        ("d", "2", {"CIDEr": 0.8, "images": 30}),
    ):
        folder = RunFolder(tmp_path / name)
        folder.path.mkdir()
        folder.save_config(Config())
        folder.write_json("data", {"data": "mine", "sha256": digest})
        folder.write_json("scores_test", scores)
    a, b, c, d = read_runs([tmp_path / name for name in "abcd"])
    ways = "(a: 30 images, light tokenizer; b: 30 images, ptb tokenizer) and cannot be compared"
    assert ways in make_page([a, b]) and a.scores == {"CIDEr": 0.5}
    assert "cannot be compared" not in make_page([a, c])
    # The same folder held other data then.
    assert "The runs use different data: their scores cannot be compared" in make_page([a, d])


def test_settings_that_differ_are_shown_those_of_the_runs_first():
    first, second = captioned("a", []), captioned("b", [])
    assert setting_table([first]) == [] and "All settings are the defaults" in make_page([first])
    first.config = load_config(None, ["training.epochs=9", "seed=3", "name=x"])
    second.config = load_config(None, ["training.epochs=8", "seed=3", "pruning=null", "data.folder='<b>'"])
    rows = setting_table([first, second])
    assert rows[0] == ["setting", "a", "b", "default"]
    shown = {row[0]: row[1:] for row in rows[1:]}
    assert shown["training.epochs"] == ["9", "8", "2"] and shown["seed"] == ["3", "3", "1"]
    assert shown["data.folder"] == ["null", "<b>", "null"] and "name" not in shown
    assert shown["pruning.sparsity"] == ["0.9", "\N{EN DASH}", "0.9"]
    assert list(shown)[-1] == "seed"
    page = make_page([first, second])
    assert "<td>&lt;b&gt;</td>" in page and page.index("Scores") < page.index("<h2>Settings</h2>")


def test_both_forms_of_supermask_pruning_have_the_colours_of_a_study():
    runs = [captioned(label, []) for label in "abcde"]
    methods = ("gradual", "supermask_loss", "supermask", "supermask", None)
    for run, method in zip(runs, methods, strict=True):
        run.config = load_config(None, [f"pruning.method={method}" if method else "pruning=null"])
    looks = page_module._looks(runs)
    assert [looks[label]["color"] for label in "bcd"] == ["#000000", "#0072B2", "#0072B2"]
    assert len({tuple(look.values()) for look in looks.values()}) == 5


def test_the_distribution_of_weights_has_no_zeros_and_an_area_of_one(tmp_path, monkeypatch):
    """SMP, Figure 9."""
    model, run, figures = (
        keras.Sequential([keras.Input((40,)), keras.layers.Dense(50)]),
        captioned("a", []),
        [],
    )
    assert weight_distribution([run]) is None
    kernel = np.random.default_rng(0).normal(size=(40, 50)).astype("float32")
    kernel[np.abs(kernel) < 1] = 0
    model.layers[0].kernel.assign(kernel)
    run.folder = RunFolder(tmp_path)
    run.folder.model.touch()
    monkeypatch.setattr(page_module.FinishedRun, "load", lambda path: SimpleNamespace(captioner=model))
    monkeypatch.setattr(page_module.plotting, "as_png", lambda figure: figures.append(figure) or b"")
    assert weight_distribution([run]) is not None
    density, edges, _ = figures[0].axes[0].patches[0].get_data()
    assert (density * np.diff(edges)).sum() == pytest.approx(1)
    assert edges[-1] == pytest.approx(np.percentile(np.abs(kernel[kernel != 0]), 99.5))
    assert set(density[(edges[:-1] > -1) & (edges[1:] < 1)]) == {0.0}


def test_images_with_unusual_names_are_shown_and_unreadable_ones_named(tmp_path):
    rows = [{"image": name, "caption": "a dog", "split": "test"} for name in NAMES]
    for name in NAMES:
        Image.new("RGB", (9, 9)).save(tmp_path / name)
    (tmp_path / "captions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    config = load_config(None, ["data.kind=table", f"data.folder={json.dumps(str(tmp_path))}"])
    (tmp_path / "config.yaml").write_text(save_config(config))
    captions = [{"image_id": name, "caption": "a cat", "references": ["a dog"]} for name in NAMES]
    (tmp_path / "captions_test.json").write_text(json.dumps(captions))
    atomic_write(tmp_path / "page.html", make_page(read_runs([tmp_path]), images=4))
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.count("data:image/jpeg") == 4 and "An image is missing" not in page
    assert page.count("<h3>a b.png</h3>") == 3 and "<h3>caf .png</h3>" in page
    (tmp_path / NAMES[0]).write_text("not an image")
    page = make_page(read_runs([tmp_path]), images=4)
    assert page.count("data:image/jpeg") == 3 and page.count("<dd>a cat</dd>") == 4
    assert page.count("An image is missing: ") == 1


def test_images_that_all_runs_captioned_are_preferred():
    some = captioned("a", ["1", "2", "3", "4"])
    assert chosen_images([some, captioned("b", ["4", "2", "9"]), captioned("c", [])], 5) == ["2", "4"]
    assert chosen_images([some, captioned("b", ["9"])], 5) == ["1", "2", "3", "4"]
    assert chosen_images([captioned("a", [])], 5) == []
