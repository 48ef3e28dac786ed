"""Helpers for tests of whole runs."""

import csv

import numpy as np

from tfsparsecap.captioning.runs.run_folder import RunFolder
from tfsparsecap.captioning.settings.config_files import load_config
from tfsparsecap.captioning.training.train_run import train_run


def train(runs, settings, **options):
    """Trains silently with a list of settings or a `Config`; returns folder, result and messages."""
    config, messages = load_config(None, settings) if isinstance(settings, list) else settings, []
    result = train_run(config, runs=runs, verbose=0, report=messages.append, **options)
    return RunFolder(runs / config.name), result, messages


def resume_last_epoch(folder, settings):
    """Resumes a finished run as if it had been stopped in its last epoch; returns the messages.

    Its last checkpoint must be identical bit for bit.
    """
    last = folder.checkpoint_files()[-1]
    expected = arrays(last)
    last.unlink()
    folder.model.unlink()
    _, _, messages = train(folder.path.parent, settings, resume=True)
    assert_same_arrays(arrays(last), expected)
    return messages


def arrays(checkpoint):
    with np.load(checkpoint, allow_pickle=False) as file:
        return {key: file[key] for key in file.files if key != "notes"}


def assert_same_arrays(result, expected):
    assert len(result) > 20 and result.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(result[name], array, err_msg=name)


def history(folder):
    with folder.history.open() as file:
        return list(csv.DictReader(file))
