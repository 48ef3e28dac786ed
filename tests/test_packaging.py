"""The wheel: holds both packages, installs, and runs where the repository is not."""

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
    """Built from a copy, because building leaves folders beside the sources."""
    copy = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, copy)
    for name in ("tfsparsecap", "export"):
        shutil.copytree(REPOSITORY / name, copy / name, ignore=IGNORED)
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", cwd=copy)
    (wheel,) = (copy / "dist").glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """A folder with the wheel's content and its commands; its dependencies are those of this environment."""
    folder = tmp_path_factory.mktemp("installed")
    run(
        sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
        "--no-index", "--target", str(folder), str(wheel), cwd=folder,
    )  # fmt: skip
    return folder


@pytest.mark.slow
def test_the_wheel_holds_every_module_of_both_packages_and_the_licence(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for package, folder in (
        ("tfsparsecap", "tfsparsecap"),
        ("tfsparsecap_export", "export/tfsparsecap_export"),
    ):
        for file in (REPOSITORY / folder).rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts:
                assert (Path(package) / file.relative_to(REPOSITORY / folder)).as_posix() in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert not [name for name in names if name.startswith(("tests", "configs", "android_demo"))]


@pytest.mark.slow
def test_an_installed_wheel_is_what_runs_outside_the_repository(installed, tmp_path):
    places = run(
        sys.executable,
        "-c",
        "import tfsparsecap as sc, tfsparsecap_export as ex; print(sc.__file__, ex.__file__, sep='\\n')",
        cwd=tmp_path,
        PYTHONPATH=str(installed),
    )
    assert [Path(place).is_relative_to(installed) for place in places.splitlines()[-2:]] == [True, True]


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ["-m", "tfsparsecap.train"],
        ["-m", "tfsparsecap.evaluate"],
        ["-m", "tfsparsecap.report"],
        ["-m", "tfsparsecap.study"],
        ["-m", "tfsparsecap.convert"],
        ["-m", "tfsparsecap.caption"],
        ["-m", "tfsparsecap.demo"],
        ["-m", "tfsparsecap_export"],
        ["-m", "tfsparsecap_export.benchmark"],
        ["-m", "tfsparsecap_export.inspect"],
        ["bin/tfsparsecap-export"],
    ],
    ids=lambda command: command[-1],
)
def test_commands_of_an_installed_wheel_explain_themselves(installed, tmp_path, command):
    if command[0] != "-m":
        command = [str(installed / command[0])]
    text = run(sys.executable, *command, "--help", cwd=tmp_path, PYTHONPATH=str(installed))
    assert text.startswith("usage:")
    assert not list(tmp_path.iterdir()), "--help writes nothing"


@pytest.mark.slow
def test_the_quickstart_needs_no_file_of_the_repository(installed, tmp_path):
    """Two steps of training from nothing: defaults, data and writing of the run all come from the wheel."""
    run(
        sys.executable, "-m", "tfsparsecap.train", "training.epochs=1", "data.train=16", "data.validation=2",
        "data.test=2", "training.batch_size=32", cwd=tmp_path, PYTHONPATH=str(installed),
        XDG_CACHE_HOME=str(tmp_path / "cache"),
    )  # fmt: skip
    assert (tmp_path / "runs" / "quickstart" / "model.keras").is_file()


def test_constraints_pin_every_dependency_exactly_and_name_no_place():
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
