"""A file in a process of its own: the same outputs, and one sentence for everything that can go wrong."""

import json
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tfsparsecap_export.write import make_bundle

from tfsparsecap import caption
from tfsparsecap.command import run
from tfsparsecap.errors import InputError
from tfsparsecap.inference import isolated, runtime_child
from tfsparsecap.inference.bundle import TFLiteCaptioner, read_bundle
from tfsparsecap.inference.isolated import IsolatedRunner

# It returns the red values of its image, 4 x 4 pixels, as tokens.
ECHO = Path(__file__).resolve().parents[2] / "android_demo/app/src/test/resources/captioner/echo.tflite"

IMPORTS = f"""
import os, signal, sys
sys.path.insert(0, {str(Path(isolated.__file__).parent)!r})
import runtime_child as child
"""
# Loads anything, and then does what is appended.
LOADS = f"""{IMPORTS}
child.receive(sys.stdin.buffer)
inputs = {{"image": [[1, 4, 4, 3], "|u1"]}}
child.send(sys.stdout.buffer, {{"inputs": inputs, "outputs": ["token_ids", "scores"]}})
child.receive(sys.stdin.buffer)
"""


@pytest.fixture
def program(monkeypatch):
    """Replaces the program of the child process."""
    return lambda text: monkeypatch.setattr(isolated, "_COMMAND", (sys.executable, "-c", text))


@pytest.fixture
def without_digest(tmp_path) -> Path:
    """The file as an older version of the exporter wrote it."""
    path, content = tmp_path / "older.tflite", ECHO.read_bytes()
    description, vocabulary = read_bundle(ECHO)
    path.write_bytes(content[: content.index(b"PK\3\4")])
    with zipfile.ZipFile(path, "a") as archive:
        older = {name: value for name, value in description.items() if "sha256" not in name}
        archive.writestr("captioner.json", json.dumps(older))
        archive.writestr("vocabulary.txt", "\n".join(vocabulary) + "\n")
    return path


@pytest.fixture
def with_digest(without_digest, tmp_path) -> Path:
    description, vocabulary = read_bundle(without_digest)
    content = without_digest.read_bytes()
    path = tmp_path / "newer.tflite"
    path.write_bytes(make_bundle(content[: content.index(b"PK\3\4")], description, vocabulary))
    return path


@pytest.fixture
def image():
    return np.random.default_rng(0).integers(3, 8, (4, 4, 3), np.uint8)


def ended(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


def test_files_without_a_digest_run_in_a_process_of_their_own_with_the_same_captions(
    without_digest, with_digest, image
):
    older, newer = TFLiteCaptioner(without_digest), TFLiteCaptioner(with_digest)
    assert older.isolated and not newer.isolated
    assert older.input_names == newer.input_names and older.image_size == newer.image_size
    for _ in range(2):
        assert older.caption(image) == newer.caption(image) != []
    assert older.generate([image, image]) == newer.generate([image, image])
    assert 0 < older._run.seconds < 60
    process = older._run._process.pid
    del older
    assert ended(process)


def test_an_interrupted_call_does_not_leave_its_answer_to_the_next_one(without_digest, image, monkeypatch):
    captioner = TFLiteCaptioner(without_digest)
    with monkeypatch.context() as patch:
        patch.setattr(runtime_child, "receive", lambda stream: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            captioner.caption(image)
    with pytest.raises(InputError, match="has ended: load the file again"):
        captioner.caption(image)


def test_what_the_runtime_refuses_is_one_sentence(with_digest, tmp_path, image):
    content = with_digest.read_bytes()
    with pytest.raises(RuntimeError, match="signature"):
        IsolatedRunner(content, "a.tflite", "no_such_signature")
    run = IsolatedRunner(content, "a.tflite")
    with pytest.raises(RuntimeError):
        run(image=np.zeros((1, 2, 2, 3), np.uint8))
    assert run(image=image[None])["token_ids"].shape == (3, 4)  # it still runs
    run.close()
    with pytest.raises(InputError, match=r"process that ran a\.tflite has ended"):
        run(image=image[None])


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", InputError, r"crashes on a\.tflite \(SIGSEGV\)"),
        ("os.kill(os.getpid(), signal.SIGPROF)", InputError, r"needs more than 60 s for a\.tflite"),
        ("raise KeyError('a bug')", RuntimeError, "a bug"),
        ("sys.stdout.buffer.write(bytes(100)); sys.stdout.flush(); time.sleep(100)", InputError, "nonsense"),
    ],
)
def test_a_crash_is_an_input_error_and_a_bug_is_not(program, text, error, message, image):
    program(f"{LOADS}import time\n{text}")
    run = IsolatedRunner(b"", "a.tflite")
    with pytest.raises(error, match=message):
        run(image=image[None])
    assert run._process.poll() is not None


def test_a_crash_ends_the_command_with_one_sentence(program, without_digest, tmp_path, capsys):
    program(f"{LOADS}os.kill(os.getpid(), signal.SIGABRT)")
    Image.new("RGB", (9, 9)).save(tmp_path / "a.png")
    with pytest.raises(SystemExit) as end:
        run(lambda: caption.main([str(without_digest), str(tmp_path / "a.png")]))
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert "crashes on" in error and "(SIGABRT)" in error and error.count("\n") == 1


def test_the_process_ends_after_the_one_that_started_it():
    """Even if a run never returns: a killed process cannot end its children."""
    child = f"{IMPORTS}child._end_with(int(sys.argv[1]))"
    start = f"""
import os, signal, subprocess, sys
process = subprocess.Popen([sys.executable, "-c", {child!r}, str(os.getpid())], stdout=subprocess.DEVNULL)
print(process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", start], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    process, end = int(done.stdout), time.monotonic() + 60
    while not ended(process) and time.monotonic() < end:
        time.sleep(0.1)
    assert ended(process)
