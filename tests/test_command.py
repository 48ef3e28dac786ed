"""How command lines end."""

import errno
import subprocess
import sys

import pytest

from tfsparsecap import command
from tfsparsecap.errors import InputError


def ended(main) -> int:
    with pytest.raises(SystemExit) as end:
        command.run(main)
    return end.value.code


def raising(error):
    def main():
        raise error

    return main


def test_done_is_0_and_a_code_is_passed_on():
    assert ended(lambda: None) == 0
    assert ended(lambda: 0) == 0
    assert ended(lambda: 2) == 2


def test_wrong_input_is_one_line_and_2(capsys):
    assert ended(raising(InputError("this is wrong:\n  mend it"))) == 2
    captured = capsys.readouterr()
    assert captured.err == "error: this is wrong: mend it\n" and captured.out == ""


def test_a_full_disk_is_one_line_and_2(capsys):
    assert ended(raising(OSError(errno.ENOSPC, "No space left on device", "runs/x/log"))) == 2
    assert capsys.readouterr().err.startswith("error: the disk is full while writing runs/x/log")


def test_anything_else_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError):
        command.run(raising(ZeroDivisionError()))
    with pytest.raises(FileNotFoundError):
        command.run(raising(FileNotFoundError(errno.ENOENT, "gone")))


def test_being_stopped_is_130(capsys):
    assert ended(raising(KeyboardInterrupt())) == 130
    assert capsys.readouterr().err == "error: stopped\n"


def test_a_reader_that_has_seen_enough_is_no_error():
    code = (
        "from tfsparsecap.command import run\nrun(lambda: [print('x' * 1000) for _ in range(1000)] and None)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.read(10)
    process.stdout.close()
    complaints = process.stderr.read().decode()
    assert "Traceback" not in complaints and "BrokenPipe" not in complaints
    process.stderr.close()
    assert process.wait() == 0


def test_json_has_standard_output_for_itself(capsys):
    with command.only_json_on_stdout(True):
        print("progress")
    print("{}")
    captured = capsys.readouterr()
    assert captured.out == "{}\n" and captured.err == "progress\n"


def test_a_table_shows_names_and_values(capsys):
    command.print_table("runs/x", [("CIDEr", "0.406"), ("sparsity", "95 %")])
    shown = capsys.readouterr().out
    assert all(text in shown for text in ("runs/x", "CIDEr", "0.406", "95 %"))
    command.print_table("runs[/red]/x", [("[/b]", "[bold]0.406[/i]")])
    shown = capsys.readouterr().out
    assert all(text in shown for text in ("runs[/red]/x", "[/b]", "[bold]0.406[/i]"))
