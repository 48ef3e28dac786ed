"""Exit codes, error messages and tables of command lines."""

import errno
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tfsparsecap import command
from tfsparsecap.core.installation import pip_install
from tfsparsecap.errors import InputError, WorkerLost


def exit_code(main) -> int:
    with pytest.raises(SystemExit) as end:
        command.run(main)
    return end.value.code


def raising(error):
    def main():
        raise error

    return main


def test_exit_codes_are_passed_on():
    assert exit_code(lambda: None) == 0
    assert exit_code(lambda: 0) == 0
    assert exit_code(lambda: 2) == 2


def exhausted():
    import tensorflow as tf

    raise tf.errors.ResourceExhaustedError(None, None, "OOM")


def full():
    import tensorflow as tf

    # As TensorBoard's writer raises it.
    text = "{{function_node x}} runs/my run/logs/events.v2; No space left on device\n\tCould not flush"
    raise tf.errors.ResourceExhaustedError(None, None, text)


def too_long():
    Path("x" * 300).stat()


FULL = OSError(errno.ENOSPC, "No space left on device", "runs/x/log")
DENIED = PermissionError(errno.EACCES, "Permission denied", "runs/locked/x")
MISSING = ModuleNotFoundError("no", name="PIL.Image")


@pytest.mark.parametrize(
    ("main", "code", "message"),
    [
        (raising(InputError("this is wrong:\n  correct it")), 2, "this is wrong: correct it\n"),
        (raising(FULL), 2, "the disk is full while writing runs/x/log"),
        (too_long, 2, "cannot use xxx"),
        (raising(DENIED), 2, "cannot use runs/locked/x: Permission denied; check the path"),
        (raising(MemoryError()), 2, "there is not enough memory: reduce"),
        (exhausted, 2, "there is not enough memory: reduce"),
        (raising(OSError(errno.ENOSPC, "full", 3)), 2, "the disk is full while writing 3: free some space"),
        (full, 2, "the disk is full while writing runs/my run/logs/events.v2: free some space and try"),
        (raising(MISSING), 2, f"PIL.Image is not installed: {pip_install('all')}\n"),
        (raising(WorkerLost("a worker is lost")), 3, "a worker is lost\n"),
        (raising(KeyboardInterrupt()), 130, "stopped\n"),
        (raising(KeyboardInterrupt("stopped: go on")), 130, "stopped: go on\n"),
    ],
)
def test_errors_of_users_and_machines_print_one_line(capsys, main, code, message):
    assert exit_code(main) == code
    captured = capsys.readouterr()
    assert captured.err.startswith(f"error: {message}") and captured.err.count("\n") == 1
    assert captured.out == ""


@pytest.mark.parametrize(
    "error",
    [
        ZeroDivisionError(),
        FileNotFoundError(errno.ENOENT, "gone"),
        ModuleNotFoundError("no", name="tfsparsecap.absent"),
    ],
)
def test_other_errors_keep_their_traceback(error):
    with pytest.raises(type(error)):
        command.run(raising(error))


def test_a_closed_pipe_is_not_an_error():
    # With this name, the package leaves out TensorFlow.
    code = (
        "import sys; sys.argv = ['tfsparsecap-export']; from tfsparsecap.command import run\n"
        "run(lambda: [print('x' * 1000) for _ in range(1000)] and None)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.read(10)
    process.stdout.close()
    errors = process.stderr.read().decode()
    assert "Traceback" not in errors and "BrokenPipe" not in errors
    process.stderr.close()
    assert process.wait() == 0


def test_a_closed_standard_output_is_not_an_error(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    assert exit_code(lambda: command.print_json(["é"])) == 0


COMMANDS = [
    *("tfsparsecap.train", "tfsparsecap.evaluate", "tfsparsecap.caption", "tfsparsecap.report"),
    *("tfsparsecap.encoders", "tfsparsecap.study", "tfsparsecap.convert", "tfsparsecap.demo"),
    *("tfsparsecap_export.__main__", "tfsparsecap_export.benchmark", "tfsparsecap_export.inspect"),
    *("tfsparsecap_export.android", "tfsparsecap.slim_captioner", "tfsparsecap.publish"),
]
# One process for all of them. With this name, the package leaves out TensorFlow.
HELP = """
import importlib, sys
names, sys.argv = sys.argv[1:], ["tfsparsecap-export", "--help"]
for name in names:
    print("COMMAND", flush=True)
    try:
        importlib.import_module(name).main()
    except SystemExit as end:
        assert not end.code, name
    heavy = {"tensorflow", "keras"} & set(sys.modules)
    assert not heavy, (name, heavy)
"""


@pytest.fixture(scope="module")
def helps() -> dict[str, str]:
    """What each command prints for --help, without importing TensorFlow."""
    command = [sys.executable, "-c", HELP, *COMMANDS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(zip(COMMANDS, done.stdout.split("COMMAND\n")[1:], strict=True))


# The same after `pip install tfsparsecap`, which installs no extra.
BASE_INSTALLATION = """
import sys
extras = "PIL ai_edge_litert filelock huggingface_hub jinja2 keras_cv matplotlib pycocoevalcap pydantic"
extras += " safetensors tensorboard tensorflow_model_optimization tensorflow_text tqdm yaml"
sys.modules.update(dict.fromkeys(extras.split()))
"""


def test_help_needs_no_extras(helps):
    command = [sys.executable, "-c", BASE_INSTALLATION + HELP, *COMMANDS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("COMMAND\n")[1:] == list(helps.values())


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_examples_whose_options_exist(helps, name):
    usage, _, examples = helps[name].partition("\nexamples:\n")
    assert usage.startswith("usage:")
    called = "tfsparsecap-export" if name.endswith("__main__") else f"python -m {name}"
    lines = [line for line in examples.splitlines() if re.match(rf"  {called}(?![.\w])", line)]
    assert lines
    for option in re.findall(r"(?<!\S)--[a-z][\w-]*", " ".join(lines)):
        assert re.search(rf"{option}(?![\w-])", usage), option


def test_with_json_only_json_goes_to_standard_output(capsys):
    with command.only_json_on_stdout(True):
        print("progress")
    print("{}")
    captured = capsys.readouterr()
    assert captured.out == "{}\n" and captured.err == "progress\n"


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "ascii"])
def test_json_can_be_read_back_whatever_the_encoding_of_standard_output(encoding, monkeypatch):
    output = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(output, encoding))
    content = {"image": "caf\udce9 é 😀.png"}
    assert exit_code(lambda: command.print_json(content)) == 0
    assert json.loads(output.getvalue().decode(encoding)) == content


def test_a_table_prints_names_and_values_without_markup(capsys):
    command.print_table("runs/x", [("CIDEr", "0.406"), ("sparsity", "95 %")])
    shown = capsys.readouterr().out
    assert all(text in shown for text in ("runs/x", "CIDEr", "0.406", "95 %"))
    command.print_table("runs[/red]/x", [("[/b]", "[bold]0.406[/i]")])
    shown = capsys.readouterr().out
    assert all(text in shown for text in ("runs[/red]/x", "[/b]", "[bold]0.406[/i]"))
    assert exit_code(lambda: command.print_table("caf\udce9", [("caf\udce9", "1")])) == 0
    assert capsys.readouterr().out.count("caf\\udce9") == 2


@pytest.mark.parametrize(
    ("module", "is_printed"),
    [("raise ImportError('no library')", True), ("def get_logger(): raise SystemExit", False)],
)
def test_messages_of_tensorflow_are_printed_if_its_import_fails(tmp_path, module, is_printed):
    (tmp_path / "tensorflow.py").write_text(f"import os; os.write(2, b'of C++')\n{module}")
    (tmp_path / "tensorflow_text.py").touch()
    code = (
        "import sys; sys.argv = ['tfsparsecap-export']; from tfsparsecap import command\n"
        "sys.path.insert(0, sys.orig_argv[-1]); command.start_tensorflow()"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, check=False)
    assert (b"of C++" in done.stderr) == is_printed
