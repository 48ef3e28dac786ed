"""The check of a GPU: what it trains, and what it says about it."""

import io
import subprocess
from contextlib import redirect_stdout
from functools import partial

import pytest

from benchmarks import gpu_check
from tests import command_line
from tfsparsecap import train
from tfsparsecap.captioning.settings.config_files import load_config

#: Sizes with which each training takes seconds.
TINY = [
    *("data.train=20", "data.validation=3", "data.test=4", "data.image_size=32", "data.max_length=4"),
    *("model.encoder.image_size=32", "model.encoder.layer=conv_pw_1_relu", "model.embedding_size=6"),
    *("model.rnn_size=16", "model.attention_size=8", "training.epochs=2", "training.batch_size=50"),
]
MACHINE = {"gpus": ["NVIDIA A"], "tensorflow": "2", "keras": "3", "cuda": "12", "cudnn": "9", "python": "3"}
MACHINE["system"] = "Linux"
NAMES = [check.name for check in gpu_check.CHECKS]


ended = partial(command_line.exit_code, gpu_check.main)


def rows(text: str) -> dict[str, list[str]]:
    """The cells of a Markdown table, by the first one of each row."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()[2:]]
    assert len({len(cells) for cells in lines}) == 1
    return {name: cells for name, *cells in lines}


@pytest.fixture
def machine(monkeypatch):
    """`machine(losses=…)` gives losses to trainings by name; the others have those of the CPU."""

    def make(losses=None, gpus=("NVIDIA A",)):
        outcomes = losses or {}

        def train(trainer, name, settings, *options):
            outcome = outcomes.get("resume" if options else name, [3.0, 2.0])
            if isinstance(outcome, str):
                return gpu_check.Trained([], 1.0, outcome)
            return gpu_check.Trained(outcome, 1)

        def resume(trainer, settings):
            return train(trainer, "train", settings, "--resume")

        monkeypatch.setattr(gpu_check.Trainer, "probe", lambda trainer: MACHINE | {"gpus": list(gpus)})
        monkeypatch.setattr(gpu_check.Trainer, "train", train)
        monkeypatch.setattr(gpu_check.Trainer, "resume", resume)

    return make


def test_losses_within_the_bounds_are_ok(machine, capsys):
    machine({"train": [3.0027, 1.984], "mixed_float16": [3.02, 2.09]})
    assert ended() == 0
    text = capsys.readouterr().out
    assert text.startswith("tfsparsecap on NVIDIA A: TensorFlow 2 (built for CUDA 12 and cuDNN 9), Keras 3")
    table = rows(text)
    assert list(table)[2:] == ["cpu", *NAMES, "resume"]
    assert {cells[0] for name, cells in table.items() if name in NAMES} == {"ok"}
    # By hand: 0.0027 / 3 and 0.016 / 2.
    assert table["train"] == ["ok", "3.00270, 1.98400", "9.0e-04, 8.0e-03", "1e-03, 1e-02", "1"]


@pytest.mark.parametrize(
    ("name", "losses"),
    [
        ("train", [3.004, 2.0]),
        ("train", [3.0, 2.03]),
        ("mirrored", [3.0, float("nan")]),
        ("xla", [2.99, 2.0]),
        ("mixed_bfloat16", [3.04, 2.0]),
        ("resume", [3.0, 1.9]),
    ],
)
def test_losses_that_are_too_far_from_the_cpus_fail(machine, capsys, name, losses):
    machine({name: losses})
    assert ended() == 1
    table = rows(capsys.readouterr().out)
    assert [row for row, cells in table.items() if cells[0] == "too far from the CPU"] == [name]


def test_the_settings_of_all_checks_are_valid():
    for check in gpu_check.CHECKS:
        training = load_config(None, [*gpu_check.SETTINGS, *check.settings]).training
        assert training.epochs == 2
        expected = {"mirrored": training.distribution, "xla": "xla" if training.jit_compile is True else ""}
        assert check.name in ("train", expected.get(check.name, training.precision))


def in_this_process(trainer, command, cpu):
    """What a process of its own would do."""
    _, option, what, *arguments = command
    output = io.StringIO()
    with redirect_stdout(output):
        if option == "-c":
            exec(what, {})
        else:
            assert (option, what, cpu) == ("-m", "tfsparsecap.train", True)
            train.main(arguments)
    return subprocess.CompletedProcess(command, 0, output.getvalue(), "")


@pytest.mark.slow
@pytest.mark.usefixtures("quick_training")
def test_checks_train_on_the_cpu(monkeypatch, capsys):
    """With one of the trainings."""
    monkeypatch.setattr(gpu_check.Trainer, "_process", in_this_process)
    monkeypatch.setattr(gpu_check, "SETTINGS", TINY)
    monkeypatch.setattr(gpu_check, "CHECKS", gpu_check.CHECKS[:1])
    assert ended("--cpu") == 0, capsys.readouterr()
    table = rows(capsys.readouterr().out)
    assert list(table)[2:] == ["cpu", "train", "resume"]
    # The same training, and one that is resumed, have the same losses to the last digit.
    assert table["train"][1] == table["cpu"][1] == table["resume"][1]
    assert table["train"][2] == "0.0e+00, 0.0e+00"
    first, second = map(float, table["train"][1].split(", "))
    assert second < first
