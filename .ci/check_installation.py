"""Checks an installation without extras, with its own Python and outside the repository."""

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import tfsparsecap as sc

package = Path(sc.__file__).parent
assert package.is_relative_to(sys.prefix), f"{package} is not of this environment"
files = [Path(file) for file in metadata.files("tfsparsecap") if file.suffix == ".py"]
commands = [
    ".".join(file.with_suffix("").parts)
    for file in files
    if "parser(__doc__)" in (package.parent / file).read_text(encoding="utf-8")
]
assert "tfsparsecap.train" in commands and "tfsparsecap_export.__main__" in commands, commands
for command in commands:
    shown = subprocess.run([sys.executable, "-m", command, "--help"], capture_output=True, text=True)
    assert shown.returncode == 0 and shown.stdout.startswith("usage:"), f"{command}: {shown.stderr}"
try:
    sc.load()
except ImportError as error:
    assert ".whl[export]" in str(error), error
else:
    raise AssertionError("sc.load does without the extra export")
print(f"help of {len(commands)} commands without extras")
