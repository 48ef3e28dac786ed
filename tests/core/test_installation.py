"""The command that installs more of the package, for each place that it can come from."""

import json
import shlex

import pytest
from packaging.requirements import Requirement

from tfsparsecap.core import installation


class Installed:
    """What `importlib.metadata.distribution` returns."""

    def __init__(self, url: dict | None) -> None:
        self.url = url

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return None if self.url is None else json.dumps(self.url)


GIT = {"url": "https://example.org/t.git", "vcs_info": {"vcs": "git", "commit_id": "0a1b"}}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"url": "file:///home%20of/clone", "dir_info": {}}, ["/home of/clone[export]"]),
        ({"url": "file:///clone", "dir_info": {"editable": True}}, ["-e", "/clone[export]"]),
        ({"url": "file:///t-1-py3-none-any.whl", "archive_info": {}}, ["/t-1-py3-none-any.whl[export]"]),
        ({"url": "https://example.org/t.whl"}, ["tfsparsecap[export] @ https://example.org/t.whl"]),
        (GIT, ["tfsparsecap[export] @ git+https://example.org/t.git"]),
    ],
)
def test_the_command_names_where_the_package_was_installed_from(monkeypatch, found, expected):
    monkeypatch.setattr(installation, "distribution", lambda name: Installed(found))
    assert shlex.split(installation.pip_install("export")) == ["pip", "install", *expected]
    if "@" in expected[-1]:
        assert Requirement(expected[-1]).url.endswith(found["url"])


def test_only_a_package_from_an_index_names_it(monkeypatch, tmp_path):
    def absent(name):
        raise installation.PackageNotFoundError(name)

    monkeypatch.setattr(installation, "distribution", absent)
    clone = str(installation._CLONE)
    assert shlex.split(installation.pip_install("all"))[-1] == f"{clone}[all]"  # a clone on the path
    monkeypatch.setattr(installation, "_CLONE", tmp_path)
    monkeypatch.setattr(installation, "distribution", lambda name: Installed(None))
    assert installation.pip_install("all") == "pip install 'tfsparsecap[all]'"
