"""Models train eagerly, which is faster for a few steps; `compiled` turns that off.

Tests with `compiled` are marked `slow`.
"""

from pathlib import Path

import keras
import pytest

import tests.two_devices  # noqa: F401

FOLDER = Path(__file__).parent


@pytest.fixture
def compiled() -> None:
    """Trains with compiled steps, Keras's default."""


@pytest.fixture(autouse=True)
def eager_training(request, monkeypatch) -> None:
    if "compiled" in request.fixturenames:
        return
    compile_model = keras.Model.compile

    def compile_eagerly(self, *args, **kwargs):
        return compile_model(self, *args, **{"run_eagerly": True, **kwargs})

    monkeypatch.setattr(keras.Model, "compile", compile_eagerly)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items) -> None:
    for item in items:
        if FOLDER in item.path.parents and "compiled" in item.fixturenames:
            item.add_marker(pytest.mark.slow)
