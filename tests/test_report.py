"""The report command: its page, parsed and shown in a browser."""

import base64
import html
import io
import json
import os
import re
import shutil
import subprocess
import zipfile
from html.parser import HTMLParser
from itertools import pairwise
from types import SimpleNamespace
from xml.etree import ElementTree

import keras
import numpy as np
import pytest
from PIL import Image

from tfsparsecap import report
from tfsparsecap.command import run
from tfsparsecap.inference.finished_run import FinishedRun
from tfsparsecap.settings.build import load_data
from tfsparsecap.settings.files import load_config, save_config

pytestmark = pytest.mark.slow

HOSTILE = '<script>alert("a")</script> & <img src="http://example.com/a.png">'
HISTORY = {
    "dense": "epoch,phase,loss,seconds,validation_CIDEr\n1,train,2.5,9,0.25\n2,train,1.5,9,0.75\n",
    "pruned": "epoch,phase,loss,sparsity,validation_CIDEr\n1,train,3.5,0.125,\n2,train,2,0.9,0.5\n",
}
SCORES = {
    "dense": {
        "images": 4,
        "beam": 1,
        "CIDEr": 0.75,
        "BLEU-1": 0.5,
        "incomplete": 0.25,
        "sparsity": 0.0,
        "nonzero_weights": 5000,
    },
    "pruned": {
        "images": 4,
        "beam": 1,
        "CIDEr": 0.5,
        "BLEU-1": 0.625,
        "incomplete": 0.5,
        "sparsity": 0.9,
        "nonzero_weights": 500,
    },
}
WORD = "red"
VOID = {"img", "meta", "link", "br"}


class Reader(HTMLParser):
    """The elements of a page with their attributes and text, in order."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.crossed = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        element = SimpleNamespace(
            tag=tag, at=dict(attributes), text="", inside=[one.tag for one in self.open]
        )
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag):
        if self.open.pop().tag != tag:
            self.crossed.append(tag)

    def handle_data(self, data):
        for element in self.open:
            element.text += data

    def all(self, *tags):
        return [one for one in self.elements if one.tag in tags]

    def cells(self, caption):
        """Rows of a table, as text."""
        start = next(i for i, one in enumerate(self.elements) if one.tag == "caption" and caption in one.text)
        rows = []
        for one in self.elements[start:]:
            if one.tag == "table":
                break
            if one.tag == "tr":
                rows.append([])
            elif one.tag in ("th", "td"):
                rows[-1].append(" ".join(one.text.split()))
        return rows


def make_run(tiny_run, folder, name):
    """A finished run like the tiny one, with scores, captions and a history."""
    shutil.copytree(tiny_run, folder / name)
    config = load_config(folder / name / "config.yaml")
    config.name = name
    if name == "dense":
        config.pruning = None
    (folder / name / "config.yaml").write_text(save_config(config), encoding="utf-8")
    (folder / name / "history.csv").write_text(HISTORY[name], encoding="utf-8")
    (folder / name / "scores_test.json").write_text(json.dumps(SCORES[name]), encoding="utf-8")
    rows = [
        {
            "image_id": record.image_id,
            "caption": HOSTILE if number == 0 and name == "pruned" else f"{name} caption {number}",
            "references": [*record.captions],
        }
        for number, record in enumerate(load_data(config).split("test"))
    ]
    (folder / name / "captions_test.json").write_text(json.dumps(rows), encoding="utf-8")
    captioner = keras.saving.load_model(folder / name / "model.keras", compile=False)
    # It always predicts the same word; the pruned one has no other weights in its output layer.
    bias = np.zeros(captioner.output_layer.bias.shape, "float32")
    bias[(folder / name / "vocabulary.txt").read_text(encoding="utf-8").split("\n").index(WORD)] = 100
    captioner.output_layer.bias.assign(bias)
    if name == "pruned":
        captioner.output_layer.kernel.assign(np.zeros(captioner.output_layer.kernel.shape))
    captioner.save(folder / name / "model.keras")
    return folder / name


@pytest.fixture(scope="module")
def runs(tiny_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("compared")
    found = [make_run(tiny_run, folder, name) for name in ("dense", "pruned")]
    for run_folder, size in zip(found, (40_000, 10_000), strict=True):
        content = io.BytesIO()
        content.write(bytes(4) + b"TFL3" + bytes(size))
        with zipfile.ZipFile(content, "a") as archive:
            description = {"format_version": 1, "export_format": "auto", "max_length": 6, "int8": None}
            archive.writestr("captioner.json", json.dumps(description))
        (run_folder / "model.tflite").write_bytes(content.getvalue())
    (found[1] / "broken.tflite").write_bytes(b"nothing")
    return found


@pytest.fixture(scope="module")
def written(runs, tmp_path_factory):
    """The page of both runs, and the folder that it lies in with its figures."""
    folder = tmp_path_factory.mktemp("written")
    report.main(
        [
            *map(str, runs),
            *("--output", str(folder / "page.html"), "--figures", str(folder / "figures")),
            *("--images=3", "--attention=1"),
        ]
    )
    return folder


@pytest.fixture(scope="module")
def page(written):
    return Reader((written / "page.html").read_text(encoding="utf-8"))


def error_of(capsys, *arguments):
    """The error message of the command, which ends with exit code 2."""
    with pytest.raises(SystemExit) as end:
        run(lambda: report.main([str(argument) for argument in arguments]))
    assert end.value.code == 2
    return capsys.readouterr().err


def test_images_are_embedded_and_have_descriptions(page):
    images = page.all("img")
    for one in images:
        kind, _, content = one.at["src"].partition(";base64,")
        with Image.open(io.BytesIO(base64.b64decode(content, validate=True))) as image:
            assert kind == f"data:{image.get_format_mimetype()}"
            image.load()
        assert len(one.at["alt"]) > 15
    # Three in the gallery, three figures, and one for each of the five words of a caption of each run.
    assert len(images) == 3 + 3 + 2 * 5
    assert sum("figure" in one.at.get("class", "") for one in images) == 3
    seen = [one.at["alt"] for one in images if one.at["alt"].startswith("attention at")]
    assert len(seen) == 10 and all(
        re.fullmatch(rf"attention at \u201c{WORD}\u201d: [a-z ]+", one) for one in seen
    )


def test_page_has_no_scripts_and_no_external_resources(page):
    for element in page.elements:
        for name, value in element.at.items():
            assert not name.startswith("on")
            if name in ("src", "href", "srcset", "data", "action"):
                assert value.startswith(("data:", "#")), value[:80]
        assert element.tag not in ("script", "iframe", "object", "embed", "base")
    (style,) = page.all("style")
    assert "url(" not in style.text and "@import" not in style.text


def test_html_in_captions_is_escaped(page):
    assert HOSTILE in [one.text for one in page.all("dd")]


def test_page_is_accessible_to_screen_readers(page):
    assert not page.crossed and not page.open
    assert page.all("html")[0].at["lang"] == "en" and page.all("title")[0].text == "Comparison of 2 runs"
    levels = [int(one.tag[1]) for one in page.all("h1", "h2", "h3", "h4")]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    ids = [one.at["id"] for one in page.elements if "id" in one.at]
    assert len(ids) == len(set(ids))
    named = [one.at["aria-labelledby"] for one in page.elements if "aria-labelledby" in one.at]
    links = [one.at["href"][1:] for one in page.all("a")]
    assert set(named) | set(links) <= set(ids) and len(links) >= 8
    assert all(one.at["scope"] in ("col", "row") for one in page.all("th"))
    assert len(page.all("caption")) == len(page.all("table"))
    assert "width=device-width" in page.all("meta")[1].at["content"]


def luminance(colour):
    """Relative luminance after WCAG 2.1."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_text_has_enough_contrast_in_light_and_dark_mode(page):
    style = page.all("style")[0].text
    schemes = [dict(re.findall(r"--(\w+): (#\w{6})", part)) for part in style.split("@media")[:2]]
    assert schemes[0] != schemes[1]
    for scheme in schemes:
        for ground in ("paper", "shade"):
            for ink in ("ink", "faint", "link"):
                dark, light = sorted(luminance(scheme[name]) for name in (ground, ink))
                assert (light + 0.05) / (dark + 0.05) >= 4.5, (ground, ink)


def test_scores_are_side_by_side_and_the_best_are_marked(page):
    headings, dense, pruned = page.cells("Scores on the test split")
    dense, pruned = (dict(zip(headings, row, strict=True)) for row in (dense, pruned))
    assert (dense["run"], dense["CIDEr"], dense["BLEU-1"]) == ("dense", "0.750 (best)", "0.500")
    assert (pruned["run"], pruned["CIDEr"], pruned["BLEU-1"]) == ("pruned", "0.500", "0.625 (best)")
    assert (dense["incomplete"], pruned["incomplete"]) == ("25.0% (best)", "50.0%")
    assert pruned["sparsity"] == "90.00%" and pruned["non-zero weights"] == "500"
    assert dense["images, beam"] == "4, 1" and "METEOR" not in headings


def test_sizes_of_encoder_and_decoder_are_shown(page, runs):
    _, dense, pruned = page.cells("Sizes, and multiply-adds")
    captioner = FinishedRun.load(runs[0]).captioner
    encoder = captioner.encoder.backbone
    assert pruned[1] == dense[1] == f"{encoder.count_params():,}"
    assert dense[3] == f"{captioner.count_params() - encoder.count_params():,}"


def test_incomplete_and_repetitive_captions_are_listed(runs, tmp_path):
    shutil.copytree(runs[0], tmp_path / "run")
    file = tmp_path / "run" / "captions_test.json"
    rows = json.loads(file.read_text())
    rows[1] |= {"caption": "a star", "token_faults": ["cut at the maximum length"]}
    rows[2] |= {"caption": "a red star star on a", "token_faults": ["unknown word"]}
    file.write_text(json.dumps(rows))
    report.main(
        [str(tmp_path / "run"), "--output", str(tmp_path / "page.html"), "--images=0", "--attention=0"]
    )
    table = Reader((tmp_path / "page.html").read_text(encoding="utf-8")).cells(
        "Incomplete and repetitive captions, at most 10 of each run, the worst first"
    )
    # In drawn scenes, words may be repeated.
    assert table[1:] == [
        ["run", rows[2]["image_id"], "a red star star on a", "unknown word, function word at the end"],
        ["run", rows[1]["image_id"], "a star", "cut at the maximum length"],
    ]


def test_settings_are_side_by_side(page):
    rows = {row[0]: row[1:] for row in page.cells("Settings of the runs")}
    assert rows["setting"] == ["dense", "pruned"]
    assert rows["pruning.method"] == ["none", "supermask"]
    assert rows["pruning.sparsity"] == ["\u2013", "0.9"]
    assert rows["model.rnn_size"] == ["16", "16"] and rows["training.epochs"] == ["2", "2"]


def test_gallery_shows_captions_and_references(page, runs):
    rows = json.loads((runs[0] / "captions_test.json").read_text())
    shown = [one.text for one in page.all("h3")][:3]
    assert shown == [rows[at]["image_id"] for at in (0, 1, 2)]
    captions = [one.text for one in page.all("dd")]
    assert captions[0::2] == [rows[at]["caption"] for at in (0, 1, 2)]
    references = {one.text for one in page.all("li")}
    summaries = [one.text for one in page.all("summary")]
    assert f"{len(rows[0]['references'])} references: {rows[0]['references'][0]}" in summaries
    assert set(rows[0]["references"][1:]) <= references


def test_progression_shows_every_epoch_and_names_missing_values(page):
    rows = page.cells("Values of each epoch")
    assert rows == [
        ["run, epoch", "training loss", "sparsity, %", "CIDEr, validation split"],
        ["dense, 1", "2.5", "\u2013", "0.25"],
        ["dense, 2", "1.5", "\u2013", "0.75"],
        ["pruned, 1", "3.5", "12.5", "\u2013"],
        ["pruned, 2", "2", "90", "0.5"],
    ]
    assert "Not logged by any run: mean gate value." in [one.text for one in page.all("p")]


def test_layers_show_their_sparsity(page):
    rows = {row[0]: row[1:] for row in page.cells("Sparsity of each layer")}
    assert rows["layer"] == ["dense", "pruned"]
    assert rows["output/kernel"] == ["0.00%", "100.00%"] and rows["lstm/kernel"] == ["0.00%", "0.00%"]


def test_exported_files_are_compared_with_dense_and_broken_ones_are_named(page, runs):
    headings, dense, broken, pruned = page.cells("Exported files")
    assert headings[:4] == ["run", "file", "MB", "size relative to dense"]
    sizes = [(folder / "model.tflite").stat().st_size for folder in runs]
    assert dense[1:4] == ["model.tflite", f"{sizes[0] / 1e6:.2f}", "100.0%"]
    assert pruned[:4] == ["pruned", "model.tflite", f"{sizes[1] / 1e6:.2f}", f"{sizes[1] / sizes[0]:.1%}"]
    assert broken[1] == "broken.tflite" and "is not a .tflite file" in broken[4]


def test_figures_are_written_as_png_and_svg(written):
    files = sorted(file.name for file in (written / "figures").iterdir())
    assert files == sorted(
        f"{name}.{s}" for name in ("density", "layers", "progression") for s in ("png", "svg")
    )
    for name in ("density", "layers", "progression"):
        with Image.open(written / "figures" / f"{name}.png") as image:
            assert image.size[0] >= 1500
        text = "".join(ElementTree.parse(written / "figures" / f"{name}.svg").getroot().itertext())
        assert "dense" in text and "pruned" in text


def test_unfinished_runs_and_runs_on_other_data_are_shown(runs, tiny_run, tmp_path):
    other = tmp_path / "begun"
    other.mkdir()
    config = load_config(tiny_run / "config.yaml")
    config.data.folder = str(tmp_path / "elsewhere")
    (other / "config.yaml").write_text(save_config(config), encoding="utf-8")
    report.main([str(runs[0]), str(other), "--output", str(tmp_path / "page.html"), "--images", "0"])
    page = Reader((tmp_path / "page.html").read_text(encoding="utf-8"))
    notes = " ".join(one.text for one in page.all("li"))
    assert "begun is not finished" in notes and "use different data" in notes
    rows = page.cells("Scores on the test split")
    assert rows[1][2] == "0.750" and set(rows[2][1:]) == {"\u2013"}
    assert not (tmp_path / "elsewhere").exists()


def test_images_with_equal_names_in_different_data_are_kept_apart(runs, tiny_run, tmp_path):
    """Both data sets have a test_00000.jpg; the scenes of another seed are other scenes."""
    shutil.copytree(runs[0], tmp_path / "other")
    config = load_config(runs[0] / "config.yaml", [f"data.folder={tmp_path / 'scenes'}", "data.seed=77"])
    (tmp_path / "other" / "config.yaml").write_text(save_config(config), encoding="utf-8")
    page = tmp_path / "page.html"
    report.main([str(runs[0]), str(tmp_path / "other"), "--output", str(page), "--images=3", "--attention=0"])
    read = Reader(page.read_text(encoding="utf-8"))
    names = [one.text for one in read.all("h3")]
    assert names == ["test_00000.jpg", "test_00002.jpg", "test_00000.jpg"]
    images = [one.at["src"] for one in read.all("img") if one.at["alt"].startswith("test image")]
    assert len(set(images)) == 3 and "attention" not in [one.at.get("id") for one in read.elements]


def test_without_data_the_page_shows_captions_only(runs, tmp_path):
    config = load_config(runs[0] / "config.yaml")
    config.data.kind = "flickr"
    config.data.folder = str(tmp_path / "missing")
    shutil.copytree(runs[0], tmp_path / "run")
    (tmp_path / "run" / "config.yaml").write_text(save_config(config), encoding="utf-8")
    report.main([str(tmp_path / "run"), "--output", str(tmp_path / "page.html"), "--images", "2"])
    page = Reader((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert "The images of run are missing" in " ".join(one.text for one in page.all("li"))
    assert len([one for one in page.all("p") if one.text == "The image is missing."]) == 2
    assert [one.text for one in page.all("dd")] == ["dense caption 0", "dense caption 2"]
    assert all("figure" in one.at.get("class", "") for one in page.all("img"))


def test_damaged_files_are_errors(runs, tmp_path, capsys):
    shutil.copytree(runs[0], tmp_path / "run")
    (tmp_path / "run" / "scores_test.json").write_text('{"CIDEr": "high"}')
    error = error_of(capsys, tmp_path / "run", "--output", tmp_path / "page.html")
    assert "CIDEr: " in error
    assert error.startswith("error: cannot read ") and error.count("\n") == 1
    assert not (tmp_path / "page.html").exists()


def test_invalid_paths_and_numbers_are_errors(runs, tmp_path, capsys):
    assert "is not a run folder" in error_of(capsys, tmp_path, "--output", tmp_path / "page.html")
    assert "there is no folder" in error_of(capsys, runs[0], "--output", tmp_path / "none" / "page.html")
    assert "it is a folder" in error_of(capsys, runs[0], "--output", tmp_path)
    assert "0 or more" in error_of(capsys, runs[0], "--output", tmp_path / "page.html", "--images", "-1")
    assert not list(tmp_path.iterdir())


LOOK = """
<script>
addEventListener("load", () => {
  const page = document.getElementById("page").contentDocument, found = [...page.images];
  for (const part of page.querySelectorAll("details")) part.open = true;
  const wide = [...page.querySelectorAll("body *")].filter(one => !one.closest(".wide, .unseen, .skip")
    && one.getBoundingClientRect().right > page.documentElement.clientWidth + 1).map(one => one.outerHTML);
  document.getElementById("result").textContent = JSON.stringify({
    images: found.length, broken: found.filter(one => !one.complete || !one.naturalWidth).length,
    scrolls: page.documentElement.scrollWidth > page.documentElement.clientWidth, wide: wide.slice(0, 3),
    text: page.body.innerText.length });
});
</script>
"""


@pytest.fixture
def browser():
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None:
        assert "TFSPARSECAP_REQUIRE_BROWSER" not in os.environ, "there is no Chromium"
        pytest.skip("Chromium is not installed")
    return found


@pytest.mark.parametrize("width", [360, 1280])
def test_browser_shows_the_page_without_errors(browser, written, page, tmp_path, width):
    """On a phone, only tables and figures are wider than the screen; they scroll by themselves."""
    text = (written / "page.html").read_text(encoding="utf-8")
    frame = f'<iframe id="page" style="width:{width}px;height:800px" srcdoc="{html.escape(text)}"></iframe>'
    (tmp_path / "look.html").write_text(
        f'<!DOCTYPE html><meta charset="utf-8"><pre id="result"></pre>{LOOK}{frame}', encoding="utf-8"
    )
    command = [
        browser,
        "--headless",
        "--disable-gpu",
        "--enable-logging=stderr",
        "--virtual-time-budget=20000",
    ]
    command += ["--no-sandbox"] if os.geteuid() == 0 else []
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", (tmp_path / "look.html").as_uri()]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "CONSOLE" not in ended.stderr, ended.stderr
    (result,) = re.findall(r'<pre id="result">(.*?)</pre>', ended.stdout)
    result = json.loads(html.unescape(result))
    assert result["images"] == len(page.all("img")) and result["broken"] == 0
    assert not result["scrolls"] and not result["wide"], result
    assert result["text"] > 1000
