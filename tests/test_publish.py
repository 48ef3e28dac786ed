"""Captioners on a small hub on this machine, written and read with the client of the real one."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tfsparsecap_export import inspect

from tests.hub_server import TOKEN, running_hub
from tfsparsecap.captioning.inference import load
from tfsparsecap.captioning.inference.model_card import model_card
from tfsparsecap.captioning.runs.run_folder import RunFolder
from tfsparsecap.captioning.settings.config_files import load_config
from tfsparsecap.errors import InputError
from tfsparsecap.publish import _without_places, main

hub_client = pytest.importorskip("huggingface_hub")
constants = pytest.importorskip("huggingface_hub.constants")


@pytest.fixture
def hub(tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setattr(constants, "HF_URL_HOSTS", constants.HF_URL_HOSTS | {"127.0.0.1"})
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)  # the small hub has Git LFS only
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with running_hub() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield server


@pytest.fixture(scope="module")
def exported(tiny_run, tmp_path_factory) -> Path:
    """A copy of the tiny run, with its exported file and what a run has that is not published."""
    from tfsparsecap_export.__main__ import export

    folder = shutil.copytree(tiny_run, tmp_path_factory.mktemp("runs") / "tiny")
    (folder / "scores_test.json").write_text('{"split": "test", "images": 4, "beam": 1, "CIDEr": 0.25}')
    (folder / "data.json").write_text('{"data": "scenes: train 20 images", "sha256": ""}')
    (folder / "secret.pkl").write_bytes(b"no")
    export(["--tflite", str(folder), "--samples", "1", "--validation", "0", "--format", "dense"])
    return folder


@pytest.mark.slow
def test_a_published_run_is_loaded_in_one_line(hub, exported, capsys, tmp_path):
    main([str(exported), "someone/tiny", "--licence", "apache-2.0"])
    assert 'sc.load("hf://someone/tiny")' in capsys.readouterr().out
    files = hub.repositories["someone/tiny"]
    assert set(files) == {".gitattributes", "README.md", "model.tflite", "config.yaml", "vocabulary.txt"}
    assert files["model.tflite"] == (exported / "model.tflite").read_bytes()
    assert len(hub.objects) == 1, "the large file is a Git LFS object"
    assert files["vocabulary.txt"].decode().split() == RunFolder(exported).vocabulary.read_text().split()
    assert (
        str(exported.parent) not in files["config.yaml"].decode()
        and b"folder: scenes" in files["config.yaml"]
    )
    photo = np.random.default_rng(0).integers(0, 256, (50, 40, 3), np.uint8)
    captioner = load("hf://someone/tiny")
    assert captioner.generate(photo) == load(exported / "model.tflite").generate(photo)
    hub.repositories["someone/tiny"]["model.tflite"] = b"changed"
    inspect.main(["hf://someone/tiny", "--json"])
    assert '"caption"' in capsys.readouterr().out
    main([str(exported), "someone/tiny"])  # again, into the repository that exists
    assert hub.repositories["someone/tiny"]["model.tflite"] == captioner.path.read_bytes()


def test_settings_have_no_folders_of_this_machine():
    data = {"folder": "clients/miller/photos", "table": "C:\\Users\\me\\x.csv", "captions": ["a/b.json"]}
    settings = {
        "data": {**data, "features": "/home/me/f", "split_column": "a/b", "cache_folder": None},
        "training": {"start_from": "runs/secret", "teacher": ["runs/a", "~/b"]},
        "model": {"encoder": {"weights": "imagenet", "slimmed": "."}},
    }
    data = {"folder": "photos", "table": "x.csv", "captions": ["b.json"]}
    assert _without_places(settings) == {
        "data": {**data, "features": "f", "split_column": "a/b", "cache_folder": None},
        "training": {"start_from": "secret", "teacher": ["a", "b"]},
        "model": {"encoder": {"weights": "imagenet", "slimmed": "."}},
    }


@pytest.mark.slow
def test_the_card_is_one_that_the_client_reads(hub, exported, capsys):
    main([str(exported), "someone/tiny", "--licence", "cc-by-4.0", "--dry-run"])
    assert not hub.requests
    card = hub_client.ModelCard(capsys.readouterr().out.strip())
    data = card.data
    assert (data.license, data.library_name, data.pipeline_tag) == (
        "cc-by-4.0",
        "tfsparsecap",
        "image-to-text",
    )
    (result,) = data.eval_results
    assert (result.metric_type, result.metric_value, result.dataset_type) == ("CIDEr", 0.25, "scenes")
    for text in (
        "| CIDEr | 0.250 |",
        "scenes: train 20 images",
        'sc.load("hf://someone/tiny")',
        "Apache-2.0",
        "[export,huggingface]",
    ):
        assert text in card.text, text
    assert str(Path(__file__).parents[1]) not in card.text
    assert "on 4 images of the test split" in card.text and "The file has no confidence." in card.text


def test_the_card_of_a_captioner_on_features_takes_no_photographs():
    settings = [
        "model.kind=up_down",
        "model.encoder=null",
        "data.kind=coco",
        "data.features=x",
        "pruning=null",
    ]
    card = model_card(
        "me/regions", {"model": "UpDown", "beam": 3}, load_config(None, settings), "COCO", 10**6
    )
    assert "features of image regions in, caption out" in card and "PHOTO" not in card
    assert 'captioner.generate({"features": features})[0]' in card
    assert "tfsparsecap.caption hf://me/regions ID --features FOLDER" in card


@pytest.mark.slow
def test_a_command_takes_addresses_of_the_hub_in_the_environment(hub, exported, tmp_path):
    """In a process of its own, in which only the environment names the hub and its cache."""
    expected = load(exported / "model.tflite")
    Image.new("RGB", (40, 30), "red").save(tmp_path / "photo.png")
    environment = {**os.environ, "HF_HOME": str(tmp_path / "home"), "HF_HUB_CACHE": str(tmp_path / "hub")}

    def run(*command: str) -> str:
        command = (sys.executable, "-m", *command)
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    main([str(exported), "someone/tiny"])
    photo = str(tmp_path / "photo.png")
    assert run("tfsparsecap.caption", "hf://someone/tiny", photo).strip() == expected.generate(photo)[0].text


def refusal(function, *arguments) -> str:
    with pytest.raises(InputError) as error:
        function(*arguments)
    return str(error.value)


def test_what_is_no_captioner_of_a_hub_is_refused(hub, monkeypatch):
    hub.repositories["someone/else"] = {"model.safetensors": b""}
    hub.repositories["someone/broken"] = {"model.tflite": b"no file"}
    for address, message in [
        ("hf://someone/absent", f"there is no someone/absent on {hub.url}, or it is private: check the name"),
        ("hf://someone/else", "hf://someone/else has no model.tflite, so that it is no captioner"),
        ("hf://someone/broken", "is not a .tflite file"),
        ("hf://name", "write hf://USER/NAME"),
        ("hf://a//b", "write hf://USER/NAME"),
        ("hf://some one/na me", "is no address of a captioner"),
    ]:
        assert message in refusal(load, address), address
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{port}")
    assert "does not answer" in refusal(load, "hf://someone/else")
    monkeypatch.setenv("HF_ENDPOINT", "ftp://hub")
    assert "HF_ENDPOINT is 'ftp://hub': set it to an address" in refusal(load, "hf://someone/else")
    monkeypatch.delenv("HF_ENDPOINT")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert "needs huggingface_hub: pip install" in refusal(load, "hf://someone/else")


@pytest.mark.slow
def test_what_cannot_be_published_is_refused(hub, exported, tiny_run, tmp_path, monkeypatch):
    hub.repositories["someone/else"] = {"model.safetensors": b""}
    hub.repositories["someone/card"] = {".gitattributes": b"", "README.md": b"---\nlicense: mit\n---\n"}
    assert "export it with tfsparsecap-export" in refusal(main, [str(tiny_run), "a/b"])
    assert "config.yaml" in refusal(main, [str(tmp_path), "a/b"])
    assert "holds something else (model.safetensors)" in refusal(main, [str(exported), "someone/else"])
    hub.repositories["someone/file"] = {"model.tflite": b"of another program"}
    assert "holds something else (model.tflite)" in refusal(main, [str(exported), "someone/file"])
    assert "'q' is not a name such as USER/NAME" in refusal(main, [str(exported), "q"])
    assert "q" not in hub.repositories
    licence = ["--licence", "nonsense: x"]
    assert "'nonsense: x' is no licence of the hub" in refusal(main, [str(exported), "a/b", *licence])
    assert "is not a name such as USER/NAME" in refusal(main, [str(exported), "x y/z"])
    main([str(exported), "someone/card"])  # a repository with nothing but a card is free
    other = shutil.copytree(exported, tmp_path / "other")
    settings = (other / "config.yaml").read_text().replace("name: tiny", "name: other")
    (other / "config.yaml").write_text(settings)
    assert "is of another run, 'tiny': export" in refusal(main, [str(other), "a/b"])
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    denied = refusal(main, [str(exported), "someone/new"])
    assert f"someone/new on {hub.url} is not yours to change: log in with hf auth login" in denied
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert "http://127.0.0.1:9 does not answer" in refusal(main, [str(exported), "someone/new"])
    assert list(hub.repositories["someone/else"]) == ["model.safetensors"] and "a/b" not in hub.repositories
