"""The benchmark of two workers: its rows cover everything, differences and tables; no training."""

import json

import numpy as np
import pytest

from benchmarks import workers
from benchmarks.trainer_processes import Measured
from benchmarks.worker_rows import ROWS, Row
from tfsparsecap.captioning.settings.config_files import load_config
from tfsparsecap.captioning.settings.contradictions import check_settings


@pytest.fixture(scope="module")
def configs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    return {row.name: load_config(None, row.all_settings(folder, folder)) for row in ROWS}


def test_the_rows_are_valid_trainings_without_dropout_that_workers_can_share(configs):
    assert len({row.run for row in ROWS}) == len(ROWS)
    assert {row.needs for row in ROWS} <= {"", *configs}
    for row, config in zip(ROWS, configs.values(), strict=True):
        check_settings(config)
        dropout = {name: value for name, value in config.model.model_dump().items() if "dropout" in name}
        assert not any(dropout.values()), row.name
        scst = config.training.scst
        assert config.training.batch_size % 2 == 0 and (scst is None or scst.batch_size % 2 == 0)
        assert row.samples == (scst is not None)


def write_checkpoints(folder, weight):
    (folder / "checkpoints").mkdir(parents=True)
    for epoch, value in ((1, 7.0), (2, weight)):
        arrays = {"model/0000/kernel": np.float32([value, 2]), "model/0001/seed": np.int64([epoch])}
        np.savez(folder / "checkpoints" / f"epoch-000{epoch}.npz", **arrays, notes="{}")


class Fake:
    """Processes that write checkpoints instead of training."""

    def __init__(self, count, digests="ab"):
        self.count, self.digests, self.trained = count, digests, []

    def train(self, settings, runs):
        name = settings[0].removeprefix("name=")
        self.trained.append((runs.name, name))
        if "pruning.method=fails" in settings and self.count == 2:
            return "it fails"
        write_checkpoints(runs / name, 1.0 + 0.25 * (self.count == 2))
        return [Measured(0.5 * self.count, 10.0, 3, self.digests[0]) for _ in range(self.count)]

    __enter__ = __exit__ = lambda self, *exception: self


def test_rows_are_trained_in_turn_and_compared(tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "Trainers", Fake)
    first, second = Row("a, b", needs=ROWS[0].name), Row("c", ("pruning.method=fails",))
    comparisons = workers.compare(tmp_path, [first, second, Row("d", samples=True)])
    assert list(comparisons) == ["a, b", "c", "d"]
    assert comparisons["a, b"] == workers.Compared(0.25, None, 0.5, 1.0, 10.0, 12)
    assert comparisons["c"].problem == "two workers: it fails"
    assert comparisons["d"].workers == 0.25 and comparisons["d"].devices is None  # compared with two devices
    assert (tmp_path / workers.MIRRORED / "d").is_dir() and not (tmp_path / workers.MIRRORED / "c").exists()
    assert (tmp_path / workers.NEEDED / ROWS[0].run).is_dir()
    comparisons = workers.compare(tmp_path, [first], devices=True)
    assert comparisons["a, b"].devices == 0


def test_tables_and_exit_codes(tmp_path, monkeypatch, capsys):
    comparisons = {"ORT": workers.Compared(1e-8, 0.0, 0.1, 0.15, 2e6, 2_000_004)}
    monkeypatch.setattr(workers, "compare", lambda folder, rows, devices: comparisons)
    assert workers.main([str(tmp_path), "--rows", "ORT"]) == 0
    printed = capsys.readouterr().out
    assert all(text in printed for text in ("1e-08", "100 ms", "150 ms", "1.50", "2.000 MB"))
    comparisons["ACORT"] = workers.Compared(problem="two workers: no memory")
    assert workers.main([str(tmp_path), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["ACORT"]["problem"] == "two workers: no memory"
