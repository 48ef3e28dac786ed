"""The wheel: it contains both packages, installs, and runs outside the repository."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
IGNORED = shutil.ignore_patterns("__pycache__", "*.pyc")


def run(*command: str, cwd: Path, **environment: str) -> str:
    result = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built from a copy, because building writes beside the sources."""
    copy = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, copy)
    for name in ("tfsparsecap", "export", "configs"):
        shutil.copytree(REPOSITORY / name, copy / name, ignore=IGNORED)
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", cwd=copy)
    (wheel,) = (copy / "dist").glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """A folder with the installed wheel; its dependencies are those of this environment."""
    folder = tmp_path_factory.mktemp("installed")
    run(
        sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
        "--no-index", "--target", str(folder), str(wheel), cwd=folder,
    )  # fmt: skip
    return folder


@pytest.mark.slow
def test_the_wheel_contains_both_packages_and_the_licence(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for package, folder in (
        ("tfsparsecap", "tfsparsecap"),
        ("tfsparsecap_export", "export/tfsparsecap_export"),
        ("tfsparsecap/configs", "configs"),
    ):
        for file in (REPOSITORY / folder).rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts:
                assert (Path(package) / file.relative_to(REPOSITORY / folder)).as_posix() in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if name.startswith(("tests", "configs", "android_demo"))]


@pytest.mark.slow
@pytest.mark.parametrize("command", ["-m tfsparsecap.train", "bin/tfsparsecap-export"])
def test_commands_of_an_installed_wheel_print_help(installed, tmp_path, command):
    if command.startswith("bin"):
        command = str(installed / command)
    text = run(sys.executable, *command.split(), "--help", cwd=tmp_path, PYTHONPATH=str(installed))
    assert text.startswith("usage:")
    assert not list(tmp_path.iterdir()), "--help writes nothing"


@pytest.mark.slow
def test_the_quickstart_and_settings_need_only_the_wheel(installed, tmp_path):
    """Training from the defaults; data, settings and code come from the wheel; the run is loaded from it."""
    code = """
import sys, tensorflow as tf, tfsparsecap as sc, tfsparsecap_export
from tfsparsecap import train
from tfsparsecap.captioning.settings.config_files import config_file, load_config
from tfsparsecap.papers.study_grid import grid, load_study
assert load_config("flickr8k_good").model.encoder.network == "tiny_vit_5m"
assert grid(load_study("studies/flickr8k"), "studies/flickr8k")
tf.config.run_functions_eagerly(True)  # compiling takes longer than this training
train.main(sys.argv[1:])
print(config_file("flickr8k_good"), sc.__file__, tfsparsecap_export.__file__, sc.__version__, sep="\\n")
assert sc.load("runs/quickstart").captioner.built
"""
    lines = run(
        sys.executable, "-c", code, "training.epochs=1", "data.train=16", "data.validation=2", "data.test=2",
        "training.batch_size=32", cwd=tmp_path, PYTHONPATH=str(installed),
        XDG_CACHE_HOME=str(tmp_path / "cache"),
    ).splitlines()  # fmt: skip
    assert Path(lines[-4]) == installed / "tfsparsecap/configs/flickr8k_good.yaml"
    assert all(Path(place).is_relative_to(installed) for place in lines[-3:-1])
    project = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    assert f'version = "{lines[-1]}"' in project


@pytest.mark.slow
def test_scripts_beside_a_clone_import_the_package(tmp_path):
    """A folder without __init__.py is a package, too: with the usual name of the clone, it must not win."""
    (tmp_path / "tfsparsecap").mkdir()
    code = "import sys; sys.path.insert(0, ''); from importlib.util import find_spec as find\n"
    code += "print(find('tfsparsecap').origin, find('tfsparsecap_export').origin, sep='\\n')"
    paths = run(sys.executable, "-c", code, cwd=tmp_path).splitlines()
    assert [Path(path).name for path in paths] == ["__init__.py"] * 2
    assert not any(Path(path).is_relative_to(tmp_path) for path in paths)


def test_constraints_pin_exact_versions():
    lines = (REPOSITORY / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all(pin.count("==") == 1 and "/" not in pin and "@" not in pin for pin in pins)
    project = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    names = {pin.split("==")[0].lower().replace("_", "-") for pin in pins}
    for name in (
        "tensorflow",
        "keras",
        "tensorflow-text",
        "keras-cv",
        "ai-edge-litert",
        "pycocoevalcap",
        "ruff",
    ):
        assert name in names and f'"{name}' in project
