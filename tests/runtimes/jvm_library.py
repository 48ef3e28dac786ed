"""Builds TFLite's Android library for a JVM on the desktop.

Usage: `python3 jvm_library.py PACKAGE_FOLDER OUTPUT_FOLDER`

PACKAGE_FOLDER is an unpacked Android package (AAR). OUTPUT_FOLDER receives the x86_64 library, which glibc
can load (`bionic.py`), and the agent with which the JVM loads it, `liblog.so` (`jvm_agent.c`,
`bionic.c`). Android builds run this file without the project's environment: it needs only Python and the
Debian packages `gcc libc6-dev`.
"""

import subprocess
import sys
from pathlib import Path

from bionic import without_bionic  # in the folder of this file

_HERE = Path(__file__).resolve().parent
_AGENT = "liblog.so"
_LIBRARY = "libtensorflowlite_jni.so"


def make(package: Path, output: Path) -> None:
    """Writes the library and the agent.

    Raises:
        OSError: a file or gcc does not exist.
        subprocess.CalledProcessError: gcc failed; it has printed the reason.
    """
    output.mkdir(parents=True, exist_ok=True)
    library = (package / "jni" / "x86_64" / _LIBRARY).read_bytes()
    (output / _LIBRARY).write_bytes(without_bionic(library, _AGENT))
    command = ["gcc", "-O2", "-Wall", "-Wextra", "-U_FORTIFY_SOURCE", "-shared", "-fPIC"]
    # Calls inside bionic.c must not be resolved to glibc.
    command += [f"-Wl,-soname,{_AGENT}", "-Wl,-Bsymbolic", "-Wl,--no-as-needed", "-o", str(output / _AGENT)]
    subprocess.run([*command, str(_HERE / "jvm_agent.c"), str(_HERE / "bionic.c"), "-lm", "-ldl"], check=True)


if __name__ == "__main__":
    make(Path(sys.argv[1]), Path(sys.argv[2]))
