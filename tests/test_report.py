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
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from PIL import Image

from tests.command_line import exit_code
from tfsparsecap import report
from tfsparsecap.captioning.settings.build import load_data
from tfsparsecap.captioning.settings.config_files import load_config, save_config

pytestmark = pytest.mark.slow

HOSTILE = '<script>alert("a")</script> & <img src="http://example.com/a.png">'
HISTORY = {
    "dense": "epoch,phase,loss,seconds,validation_CIDEr\n1,train,2.5,9,0.25\n2,train,1.5,9,0.75\n",
    "pruned": "epoch,phase,loss,sparsity,validation_CIDEr\n1,train,3.5,0.125,\n2,train,2,0.9,0.5\n",
}
SCORES = {
    "dense": {"images": 4, "CIDEr": 0.75, "BLEU-4": 0.5, "sparsity": 0.0},
    "pruned": {"images": 4, "CIDEr": 0.5, "BLEU-4": 0.625, "sparsity": 0.9},
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
            tag=tag, at=dict(attributes), text="", inside=[parent.tag for parent in self.open]
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
        return [element for element in self.elements if element.tag in tags]

    def cells(self, caption):
        """Rows of a table, as text."""
        start = next(
            i
            for i, candidate in enumerate(self.elements)
            if candidate.tag == "caption" and caption in candidate.text
        )
        rows = []
        for element in self.elements[start:]:
            if element.tag == "table":
                break
            if element.tag == "tr":
                rows.append([])
            elif element.tag in ("th", "td"):
                rows[-1].append(" ".join(element.text.split()))
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
    # It always predicts the same word.
    bias = np.zeros(captioner.output_layer.bias.shape, "float32")
    bias[(folder / name / "vocabulary.txt").read_text(encoding="utf-8").split("\n").index(WORD)] = 100
    captioner.output_layer.bias.assign(bias)
    captioner.save(folder / name / "model.keras")
    return folder / name


@pytest.fixture(scope="module")
def runs(tiny_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("compared")
    folders = [make_run(tiny_run, folder, name) for name in ("dense", "pruned")]
    for run_folder, size in zip(folders, (40_000, 10_000), strict=True):
        content = io.BytesIO()
        content.write(bytes(4) + b"TFL3" + bytes(size))
        with zipfile.ZipFile(content, "a") as archive:
            description = {"format_version": 1, "export_format": "auto", "max_length": 6, "int8": None}
            archive.writestr("captioner.json", json.dumps(description))
        (run_folder / "model.tflite").write_bytes(content.getvalue())
    (folders[1] / "broken.tflite").write_bytes(b"nothing")
    return folders


@pytest.fixture(scope="module")
def written(runs, tmp_path_factory):
    """The page of both runs."""
    path = tmp_path_factory.mktemp("written") / "page.html"
    report.main([*map(str, runs), "--output", str(path), "--images=3"])
    return path


@pytest.fixture(scope="module")
def page(written):
    return Reader(written.read_text(encoding="utf-8"))


def page_of(folder, *arguments):
    """The page that the command writes."""
    report.main([*map(str, arguments), "--output", str(folder / "page.html")])
    return Reader((folder / "page.html").read_text(encoding="utf-8"))


def error_of(capsys, *arguments):
    """The error message of the command, which ends with exit code 2."""
    assert exit_code(report.main, *arguments) == 2
    return capsys.readouterr().err


def test_images_are_embedded_and_have_descriptions(page):
    images = page.all("img")
    for img in images:
        kind, _, content = img.at["src"].partition(";base64,")
        with Image.open(io.BytesIO(base64.b64decode(content, validate=True))) as image:
            assert kind == f"data:{image.get_format_mimetype()}"
            image.load()
        assert len(img.at["alt"]) > 15
    # Three in the gallery, curves, weights, and one for each of the three words of each run's captions.
    assert len(images) == 3 + 2 + 3 * 2 * 3
    attended = [element.at["alt"] for element in images if element.at["alt"].startswith("attention at")]
    assert attended == 18 * [f"attention at \u201c{WORD}\u201d"]


def test_page_has_no_scripts_and_no_external_resources_and_captions_are_escaped(page):
    for element in page.elements:
        for name, value in element.at.items():
            assert not name.startswith("on")
            if name in ("src", "href", "srcset", "data", "action"):
                assert value.startswith(("data:", "#")), value[:80]
        assert element.tag not in ("script", "iframe", "object", "embed", "base")
    assert HOSTILE in [description.text for description in page.all("dd")]
    (style,) = page.all("style")
    assert "url(" not in style.text and "@import" not in style.text


def test_page_is_accessible_to_screen_readers(page):
    assert not page.crossed and not page.open
    assert page.all("html")[0].at["lang"] == "en"
    assert page.all("title")[0].text == "Comparison of 2 runs: dense, pruned"
    levels = [int(heading.tag[1]) for heading in page.all("h1", "h2", "h3", "h4")]
    assert levels[0] == 1 and levels.count(1) == 1 and set(levels) == {1, 2, 3}
    assert all(cell.at["scope"] in ("col", "row") for cell in page.all("th"))
    assert len(page.all("caption")) == len(page.all("table")) == 3


def test_page_shows_scores_captions_references_and_files(page, runs):
    assert page.cells("Scores on the test split") == [
        ["run", "CIDEr", "BLEU-4", "sparsity"],
        ["dense", "0.750", "0.500", "0.000"],
        ["pruned", "0.500", "0.625", "0.900"],
    ]
    rows = json.loads((runs[0] / "captions_test.json").read_text())
    assert [heading.text for heading in page.all("h3")][:3] == [rows[at]["image_id"] for at in (0, 1, 2)]
    assert [description.text for description in page.all("dd")][0::2] == [
        rows[at]["caption"] for at in (0, 1, 2)
    ]
    assert {*rows[0]["references"]} <= {item.text for item in page.all("li")}
    headings, dense, broken, pruned = page.cells("Sizes of the files")
    assert headings == ["run", "file", "MB", "format"]
    sizes = [f"{(folder / 'model.tflite').stat().st_size / 1e6:.2f}" for folder in runs]
    assert dense == ["dense", "model.tflite", sizes[0], "auto"] and pruned[2] == sizes[1]
    assert broken[1] == "broken.tflite" and "is not a .tflite file" in broken[3]


def test_unfinished_runs_and_runs_on_other_data_are_shown(runs, tiny_run, tmp_path):
    other = tmp_path / "begun"
    other.mkdir()
    config = load_config(tiny_run / "config.yaml")
    config.data.folder = str(tmp_path / "elsewhere")
    (other / "config.yaml").write_text(save_config(config), encoding="utf-8")
    page = page_of(tmp_path, runs[0], other, "--images=0")
    notes = " ".join(item.text for item in page.all("li"))
    assert "begun is not finished" in notes and "use different data" in notes
    rows = page.cells("Scores on the test split")
    assert rows[1][1] == "0.750" and set(rows[2][1:]) == {"\u2013"}
    assert not (tmp_path / "elsewhere").exists()


def test_without_data_the_page_shows_captions_only(runs, tmp_path):
    config = load_config(runs[0] / "config.yaml")
    config.data.kind = "flickr"
    config.data.folder = str(tmp_path / "missing")
    shutil.copytree(runs[0], tmp_path / "run")
    (tmp_path / "run" / "config.yaml").write_text(save_config(config), encoding="utf-8")
    page = page_of(tmp_path, tmp_path / "run", "--images=2")
    assert "The images of run are missing" in " ".join(item.text for item in page.all("li"))
    assert len([paragraph for paragraph in page.all("p") if paragraph.text == "The image is missing."]) == 2
    assert [description.text for description in page.all("dd")] == ["dense caption 0", "dense caption 2"]
    assert len(page.all("img")) == 2  # curves and weights


LOOK = """
<script>
addEventListener("load", () => {
  const page = document.getElementById("page").contentDocument, found = [...page.images];
  for (const part of page.querySelectorAll("details")) part.open = true;
  const wide = [...page.querySelectorAll("body *")].filter(one => !one.closest(".wide")
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
    executable = next(filter(None, map(shutil.which, names)), None)
    if executable is None:
        assert "TFSPARSECAP_REQUIRE_BROWSER" not in os.environ, "there is no Chromium"
        pytest.skip("Chromium is not installed")
    return executable


def test_browser_shows_the_page_without_errors(browser, written, page, tmp_path):
    """On a phone, only tables are wider than the screen; they scroll by themselves."""
    text = written.read_text(encoding="utf-8")
    frame = f'<iframe id="page" style="width:360px;height:800px" srcdoc="{html.escape(text)}"></iframe>'
    (tmp_path / "look.html").write_text(
        f'<!DOCTYPE html><meta charset="utf-8"><pre id="result"></pre>{LOOK}{frame}', encoding="utf-8"
    )
    command = [browser, "--headless", "--disable-gpu", "--enable-logging=stderr"]
    command.append("--virtual-time-budget=20000")
    command += ["--no-sandbox"] if os.geteuid() == 0 else []
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", (tmp_path / "look.html").as_uri()]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "CONSOLE" not in ended.stderr, ended.stderr
    (result,) = re.findall(r'<pre id="result">(.*?)</pre>', ended.stdout)
    result = json.loads(html.unescape(result))
    assert result["images"] == len(page.all("img")) and result["broken"] == 0
    assert not result["scrolls"] and not result["wide"], result
    assert result["text"] > 500


def test_wrong_files_paths_and_numbers_are_refused(runs, tmp_path, capsys):
    page = tmp_path / "page.html"
    assert "is not a run folder" in error_of(capsys, tmp_path, "--output", page)
    assert "there is no folder" in error_of(capsys, runs[0], "--output", tmp_path / "none" / "page.html")
    assert "it is a folder" in error_of(capsys, runs[0], "--output", tmp_path)
    message = error_of(capsys, runs[0], "--output", tmp_path / "page.png")
    assert "as a .html file: give a name that ends in .html" in message
    assert "--images is -1: give a whole number" in error_of(
        capsys, runs[0], "--output", page, "--images", "-1"
    )
    shutil.copytree(runs[0], tmp_path / "run")
    (tmp_path / "run" / "scores_test.json").write_text('{"CIDEr": "high"}')
    error = error_of(capsys, tmp_path / "run", "--output", page)
    assert error.startswith("error: cannot read ") and "CIDEr: " in error and error.count("\n") == 1
    assert not page.exists()
