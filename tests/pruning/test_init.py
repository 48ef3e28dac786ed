"""The examples in the docstrings of the pruning package run."""

import doctest
import importlib
import pkgutil

import pytest

from tfsparsecap import pruning


@pytest.mark.parametrize("name", [module.name for module in pkgutil.iter_modules(pruning.__path__)])
def test_examples_in_docstrings_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(f"tfsparsecap.pruning.{name}")
    failed, _ = doctest.testmod(module, report=True)
    assert not failed
