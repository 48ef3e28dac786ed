"""Runs TFLite 2.16.1, the newest release for Android, on the desktop: its x86_64 and arm64 libraries.

The Android package (an AAR, 6 MB) comes from Maven Central. Its libraries are patched so that glibc can load
them (`bionic.py`, `bionic.c`), and called by a small program (`harness.c`) in a separate process, for arm64
under qemu. The package and the programs are cached in `.cache/` in the repository, so that a second run needs
no network.

Required Debian packages: `maven` to download it once, `gcc libc6-dev` for x86_64, and for arm64
`gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user`. Tests that call `require` or `run` are skipped with a
message if these are missing, or fail if TFSPARSECAP_REQUIRE_ANDROID is set, as in `.ci/run`.
"""

import dataclasses
import functools
import hashlib
import io
import os
import platform
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from tfsparsecap.core.files import atomic_write

from .bionic import without_bionic

VERSION = "2.16.1"
REQUIRED = "TFSPARSECAP_REQUIRE_ANDROID"

_PACKAGE = f"tensorflow-lite-{VERSION}.aar"
_COORDINATES = f"org.tensorflow:tensorflow-lite:{VERSION}:aar"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
_SHA256 = "34b065817e294e7dd3569504e8b9454938ceae453b6a459da54d5f6e45d3c94e"
# Headers that the package's headers include but that it does not contain, with the declarations they need.
_ABSENT_HEADERS = {
    "tensorflow/lite/core/async/c/types.h": "",
    "tensorflow/lite/core/c/registration_external.h": (
        "typedef struct TfLiteRegistrationExternal TfLiteRegistrationExternal;\n"
    ),
}
_HERE = Path(__file__).resolve().parent
_SOURCES = [_HERE / "harness.c", _HERE / "bionic.c"]
_CACHE = _HERE.parent.parent / ".cache" / f"tflite-{VERSION}"
# A tiny file takes a second under qemu, and much longer on a busy machine.
_SECONDS = 600

#: Numbers of TfLiteType.
_TYPES = {
    np.dtype(np.float32): 1,
    np.dtype(np.int32): 2,
    np.dtype(np.uint8): 3,
    np.dtype(np.int64): 4,
    np.dtype(np.bool_): 6,
    np.dtype(np.int8): 9,
}
_DTYPES = {number: dtype for dtype, number in _TYPES.items()}


@dataclasses.dataclass(frozen=True)
class _Platform:
    """How programs for an ABI are built and run: folder in the package, commands, Debian packages."""

    folder: str
    compiler: str
    runner: tuple[str, ...]
    packages: str


_PLATFORMS = {
    "x86_64": _Platform("x86_64", "gcc", (), "gcc libc6-dev"),
    "arm64": _Platform(
        "arm64-v8a",
        "aarch64-linux-gnu-gcc",
        ("qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"),
        "gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user",
    ),
}
ABIS = tuple(_PLATFORMS)


class RuntimeFailure(Exception):
    """The library rejected a file, or failed to run it; the message is the library's."""


def run(
    path: str | os.PathLike, inputs: Mapping[str, np.ndarray], abi: str = "x86_64", *, xnnpack: bool = True
) -> dict[str, np.ndarray]:
    """Runs the first signature of a .tflite file once; see `run_each`.

    Example:
        >>> run("captioner.tflite", {"image": np.zeros((1, 224, 224, 3), np.uint8)}, "arm64")["token_ids"]
        array([[17, 4, 9, 2, 0, 0], ...
    """
    return run_each(path, [inputs], abi, xnnpack=xnnpack)[0]


def run_each(
    path: str | os.PathLike,
    samples: Sequence[Mapping[str, np.ndarray]],
    abi: str = "x86_64",
    *,
    xnnpack: bool = True,
) -> list[dict[str, np.ndarray]]:
    """Runs the first signature of a .tflite file on each of several inputs, in one process.

    Args:
        path: the file.
        samples: the signature's inputs by name, with the shapes and dtypes of the file.
        abi: `x86_64` or `arm64`.
        xnnpack: whether to use the XNNPACK delegate for the operations that it supports, as apps do by
            default.

    Returns:
        The signature's outputs by name, for each sample.

    Raises:
        RuntimeFailure: the library rejects the file or the inputs.
    """
    require(abi)
    content = b"".join(_given(sample) + b"run\n" for sample in samples)
    mode = "xnnpack" if xnnpack else "plain"
    stream = io.BytesIO(_answer([*_program(abi), os.fspath(path), mode], content, abi).stdout)
    return [_outputs(stream) for _ in samples]


def instructions(path: str | os.PathLike, inputs: Mapping[str, np.ndarray]) -> float:
    """Instructions of a run of the first signature on a Cortex-A76, with XNNPACK, counted under qemu."""
    emulator, *program = _program("arm64")
    counts = []
    for runs in (1, 3):  # loading the file and reading the inputs is in both
        content = _given(inputs) + f"repeat {runs}\n".encode()
        command = [
            emulator,
            "-cpu",
            "cortex-a76",
            "-plugin",
            str(_counter()),
            *program,
            os.fspath(path),
            "xnnpack",
        ]
        counts.append(int(_answer(command, content, "arm64").stderr.split()[-1]))
    return (counts[1] - counts[0]) / 2


@functools.cache
def _counter() -> Path:
    """The plugin that counts instructions, built for this machine."""
    source = _HERE / "count_instructions.c"
    library = _CACHE / f"count-{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}.so"
    if not library.is_file():
        with tempfile.TemporaryDirectory(dir=_CACHE) as folder:
            built = Path(folder) / library.name
            subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", built, source], check=True)
            built.replace(library)
    return library


def _given(inputs: Mapping[str, np.ndarray]) -> bytes:
    """The lines that set the inputs of a run."""
    content = bytearray()
    for name, value in inputs.items():
        value = np.asarray(value)
        content += f"input {_TYPES[value.dtype]} {value.nbytes} {name}\n".encode() + value.tobytes()
    return bytes(content)


def _answer(command: Sequence[str], content: bytes, abi: str) -> subprocess.CompletedProcess:
    """The result of the harness for the given requests."""
    result = subprocess.run(command, input=content, capture_output=True, timeout=_SECONDS, check=False)
    if result.returncode:
        message = result.stderr.decode(errors="replace").strip()
        raise RuntimeFailure(f"TFLite {VERSION} for {abi} ended with {result.returncode}:\n{message}")
    return result


def _outputs(stream: io.BytesIO) -> dict[str, np.ndarray]:
    outputs = {}
    while (line := stream.readline().decode().rstrip("\n")) != "done":
        word, type_number, size, rank, shape_and_name = line.split(" ", 4)
        assert word == "output", line
        *shape, name = shape_and_name.split(" ", int(rank))
        values = np.frombuffer(stream.read(int(size)), _DTYPES[int(type_number)])
        outputs[name] = values.reshape([int(length) for length in shape])
    return outputs


def require(abi: str) -> None:
    """Skips the calling test if `run` is not possible, or fails it if TFSPARSECAP_REQUIRE_ANDROID is set."""
    skip_or_fail(missing(abi))


def skip_or_fail(reason: str | None) -> None:
    """Skips or fails the calling test, as `require` does, unless the reason is None."""
    if reason is not None:
        (pytest.fail if os.environ.get(REQUIRED) else pytest.skip)(reason)


@functools.cache
def missing(abi: str) -> str | None:
    """Why the library of an ABI cannot be run here, or None if it can."""
    needed = _PLATFORMS[abi]
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return f"TFLite {VERSION}'s Android libraries are run on Linux and x86_64 only"
    absent = [tool for tool in (needed.compiler, *needed.runner[:1]) if shutil.which(tool) is None]
    if absent:
        return (
            f"TFLite {VERSION} for {abi} cannot be run without {' and '.join(absent)}:"
            f" apt-get install --no-install-recommends {needed.packages}"
        )
    try:
        android_package()
    except _NotFetched as error:
        return f"{_PACKAGE} is not in {_CACHE} and could not be fetched from Maven Central ({error})"
    return None


def android_package() -> bytes:
    """The content of the AAR, from the cache or from Maven Central; call `require` first."""
    path = _CACHE / _PACKAGE
    if path.exists():
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() == _SHA256:
            return content
    content = _fetched()
    if hashlib.sha256(content).hexdigest() != _SHA256:
        raise ValueError(f"{_COORDINATES} is not the expected file: its SHA-256 differs")
    _CACHE.mkdir(parents=True, exist_ok=True)
    atomic_write(path, content)
    return content


class _NotFetched(Exception):
    """Maven is not installed, or cannot download the package; the message gives the reason."""


def _fetched() -> bytes:
    maven = shutil.which("mvn")
    if maven is None:
        raise _NotFetched("no mvn: apt-get install --no-install-recommends maven")
    with tempfile.TemporaryDirectory() as folder:
        command = [maven, "-q", "-B", _COPY, f"-Dartifact={_COORDINATES}", f"-DoutputDirectory={folder}"]
        # Halves the CPU time of a short program.
        options = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {os.environ.get('MAVEN_OPTS', '')}"
        result = subprocess.run(
            command, env={**os.environ, "MAVEN_OPTS": options},
            capture_output=True, text=True, timeout=_SECONDS, check=False,
        )  # fmt: skip
        file = Path(folder) / _PACKAGE
        if result.returncode or not file.is_file():
            raise _NotFetched((result.stdout + result.stderr).strip()[-300:])
        return file.read_bytes()


@functools.cache
def _program(abi: str) -> tuple[str, ...]:
    """The command that runs the harness, which is built if the cache has no build of these sources."""
    needed = _PLATFORMS[abi]
    sources = [Path(__file__), _HERE / "bionic.py", *_SOURCES]
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    folder = _CACHE / f"{abi}-{digest}"
    if not folder.is_dir():
        _CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_CACHE, ignore_cleanup_errors=True) as name:
            _build(Path(name), needed)
            try:
                Path(name).rename(folder)
            except OSError:  # another process was faster
                if not folder.is_dir():
                    raise
        for other in _CACHE.glob(f"{abi}-*"):
            if other != folder:
                shutil.rmtree(other, ignore_errors=True)
    return (*needed.runner, str(folder / "harness"), str(folder / "libtensorflowlite_jni.so"))


def _build(folder: Path, needed: _Platform) -> None:
    with zipfile.ZipFile(io.BytesIO(android_package())) as package:
        library = package.read(f"jni/{needed.folder}/libtensorflowlite_jni.so")
        headers = [name for name in package.namelist() if name.endswith(".h")]
        package.extractall(folder, headers)
    (folder / "libtensorflowlite_jni.so").write_bytes(without_bionic(library))
    for name, text in _ABSENT_HEADERS.items():
        header = folder / "headers" / name
        header.parent.mkdir(parents=True, exist_ok=True)
        header.write_text(text)
    # The library imports from the program, which therefore exports its symbols and loads libm.
    flags = ["-O2", "-Wall", "-Wextra", "-U_FORTIFY_SOURCE", "-rdynamic", "-Wl,--no-as-needed"]
    command = [
        needed.compiler, *flags, f"-I{folder / 'headers'}", "-o", str(folder / "harness"),
        *map(str, _SOURCES), "-lm", "-ldl",
    ]  # fmt: skip
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise RuntimeError(
            f"the program that runs TFLite {VERSION} cannot be built; it needs the Debian packages"
            f" {needed.packages}:\n{result.stderr}"
        )
