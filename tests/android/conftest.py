"""A copy of the app's sources, and the APK built in it."""

import lzma
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tfsparsecap.captioning.captioners import captioner_path

from ..runtimes import tflite_2_16

REPOSITORY = Path(__file__).resolve().parents[2]
#: Commands that build and inspect the app, and their Debian packages.
TOOLS = {
    "make": "make",
    "mvn": "maven",
    "javac": "default-jdk-headless",
    "aapt2": "aapt",
    "apksigner": "apksigner",
    "zipalign": "zipalign",
    "readelf": "binutils",
    "zip": "zip",
    "unzip": "unzip",
    "xz": "xz-utils",
    "gcc": "gcc libc6-dev",
}
_SECONDS = 900


def app_models() -> dict[str, bytes]:
    """The models in the app, by their names there."""
    dense = lzma.decompress((REPOSITORY / "android_demo" / "models" / "dense.tflite.xz").read_bytes())
    good, small = (captioner_path(name).read_bytes() for name in ("good", "small"))
    return {"sparse.tflite": good, "small.tflite": small, "dense.tflite": dense}


def require_tools() -> None:
    """Skips the calling test if the app cannot be built; fails it in continuous integration."""
    absent = [tool for tool in TOOLS if shutil.which(tool) is None]
    if absent:
        tflite_2_16.skip_or_fail(
            f"building the app needs {' and '.join(absent)}:"
            f" apt-get install --no-install-recommends {' '.join(TOOLS[tool] for tool in absent)}"
        )
    tflite_2_16.require("x86_64")  # also checks Maven Central


class Checkout:
    """A copy of the files that `make apk` and the app's own tests need."""

    def __init__(self, path: Path):
        self.path = path
        self.apk = path / "android_demo" / "build" / "tfsparsecap.apk"
        for folder in ("android_demo", "tests/runtimes", "docs/images/photographs"):
            shutil.copytree(
                REPOSITORY / folder,
                path / folder,
                ignore=shutil.ignore_patterns("target", "build", "__pycache__", ".debug.keystore"),
            )
        shipped = "tfsparsecap/captioning/captioners"
        shutil.copytree(
            REPOSITORY / shipped, path / shipped, ignore=shutil.ignore_patterns("*.py", "__pycache__")
        )
        shutil.copy(REPOSITORY / "Makefile", path)
        self._put_examples()
        # `make` finds the environment of these tests as its own, completely installed.
        for name in ("pyproject.toml", "constraints.txt"):
            (path / name).touch()
        commands = path / ".venv" / "bin"
        commands.mkdir(parents=True)
        python = commands / "python"
        python.write_text(f"#!/bin/sh\nexec '{sys.executable}' \"$@\"\n", encoding="utf-8")
        python.chmod(0o755)
        (path / ".venv" / ".ready").touch()

    def _put_examples(self) -> None:
        """Adds the Java examples of the README, which are compiled with the tests."""
        app = self.path / "android_demo"
        guide = (app / "README.md").read_text(encoding="utf-8")
        for code in re.findall(r"^```java\n(.+?)^```", guide, re.M | re.S):
            (name,) = re.findall(r"^(?:public )?(?:final )?class (\w+)", code, re.M)
            file = app / "app" / "src" / "test" / "java" / "guide" / f"{name}.java"
            file.parent.mkdir(exist_ok=True)
            file.write_text(f"package guide;\n\n{code}", encoding="utf-8")

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess:
        """Runs a command in the copy and captures its output as text."""
        # Without the variables and job slots of an outer `make test`.
        variables = {
            key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))
        }
        return subprocess.run(
            command,
            cwd=self.path,
            env={**variables, **environment},
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )

    def build(self, *variables: str, target: str = "apk") -> subprocess.CompletedProcess:
        """Runs `make apk` or another target, which must succeed."""
        result = self.run("make", target, *variables)
        assert result.returncode == 0, result.stdout + result.stderr
        return result


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Checkout:
    """A copy in which nothing has been built."""
    require_tools()
    return Checkout(tmp_path_factory.mktemp("checkout"))


@pytest.fixture(scope="module")
def apk(checkout, tmp_path_factory) -> Path:
    """A copy of the APK that `make apk` builds by default."""
    checkout.build()
    return Path(shutil.copy(checkout.apk, tmp_path_factory.mktemp("apk") / "default.apk"))
