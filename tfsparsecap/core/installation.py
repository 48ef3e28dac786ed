"""The pip command that installs an extra of this package, for messages about what is missing."""

import json
import shlex
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

_NAME = "tfsparsecap"
#: The clone that this file is in; any other folder without the project's file is an installed copy.
_CLONE = Path(__file__).resolve().parents[2]


def pip_install(extra: str) -> str:
    """The command that installs an extra of this package from where the package came from.

    A package index is named only if the package came from one: nobody else can then have the name there.

    Args:
        extra: name of the extra, such as `export`.

    Examples:
        >>> pip_install("export").startswith("pip install ")
        True
    """
    options, source = "", f"{_NAME}[{extra}]"
    origin = _direct_url()
    if origin is not None:
        url = origin["url"]
        is_file = urlsplit(url).scheme == "file"
        location = f"{origin['vcs_info']['vcs']}+{url}" if "vcs_info" in origin else url
        source = f"{unquote(urlsplit(url).path)}[{extra}]" if is_file else f"{source} @ {location}"
        options = "-e " if origin.get("dir_info", {}).get("editable") else ""
    elif (_CLONE / "pyproject.toml").is_file():
        source = f"{_CLONE}[{extra}]"
    return f"pip install {options}{shlex.quote(source)}"


def _direct_url() -> dict | None:
    """What the installer noted (PEP 610) if the package came from a folder, a file or an address."""
    try:
        text = distribution(_NAME).read_text("direct_url.json")
    except PackageNotFoundError:
        return None
    return None if text is None else json.loads(text)
