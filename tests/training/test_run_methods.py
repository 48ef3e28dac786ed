"""Runs with pruning methods that go by a score, learn their gates at random, or decide in the middle."""

import csv
import shutil

import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.errors import InputError
from tfsparsecap.inference.finished_run import FinishedRun
from tfsparsecap.runs.run_folder import RunFolder
from tfsparsecap.settings.files import load_config
from tfsparsecap.training.run import train_run

#: What goes after an epoch goes with the first step of the next one.
BY_LOSS = ["pruning.metric=loss", "pruning.lower_bound=100", "pruning.pruning_percentage=0.4"]
BY_CIDER = ["pruning.metric=validation_CIDEr", "pruning.lower_bound=0", "pruning.pruning_percentage=0.4"]
#: method -> settings, the sparsity after each epoch of two steps.
WAYS = {
    "l1": (BY_LOSS, (0.0, 0.4)),
    "l2": (BY_LOSS, (0.0, 0.4)),
    "relevance": ([*BY_CIDER, "training.epochs=3"], (0.0, 0.4, 0.64)),
    # The gates are drawn, so that a run that goes on has to draw as if it had never stopped.
    "supermask_loss": (["pruning.land_at=0.8", "pruning.sparsity=0.7"], (None, 0.7)),
    # Looks at the first epoch and at half of the second.
    "snip": (["pruning.batches=3", "pruning.sparsity=0.7"], (0.0, 0.7)),
    # With the first step of the second epoch.
    "magnitude": (["pruning.at=0.5", "pruning.sparsity=0.7"], (0.0, 0.7)),
}


@pytest.fixture(scope="module")
def configured(tiny_settings, tmp_path_factory):
    """`configured(method, *more)`: settings of a run on cached features, whose steps take the least time."""
    cache = tmp_path_factory.mktemp("cache")

    def get(method, *more):
        frozen = ["model.encoder.trainable=false", f"data.cache_folder={cache}"]
        small = ["training.batch_size=50", "data.max_length=4"]
        if method != "relevance":
            small.append("training.validation_images=0")
        settings = [*frozen, *small, f"pruning.method={method}", *WAYS[method][0], *more]
        return load_config(None, [*tiny_settings, *settings])

    return get


def rows_of(folder):
    with (folder / "history.csv").open() as file:
        return list(csv.DictReader(file))


def state_of(checkpoint):
    with np.load(checkpoint, allow_pickle=False) as file:
        return {key: file[key] for key in file.files if key != "notes"}


@pytest.fixture(params=WAYS)
def method(request):
    """Each of them. One is compiled, which takes longer than so few steps do and is alike for all of them."""
    tf.config.run_functions_eagerly(request.param != "l2")
    yield request.param
    tf.config.run_functions_eagerly(False)


def test_a_method_prunes_as_it_is_to_and_goes_on_after_a_stop(method, configured, tmp_path):
    config, sparsities = configured(method), WAYS[method][1]
    scores = train_run(config, runs=tmp_path / "whole", verbose=0, say=str)
    whole = tmp_path / "whole" / config.name
    rows = rows_of(whole)
    for row, sparsity in zip(rows, sparsities, strict=True):
        assert sparsity is None or float(row["sparsity"]) == pytest.approx(sparsity, abs=1e-3)
    captioner = FinishedRun.load(whole).captioner
    inside = {id(variable) for variable in captioner.encoder.variables}
    kernels = [
        np.asarray(variable)
        for variable in captioner.variables
        if id(variable) not in inside and variable.path.endswith(("kernel", "embeddings"))
    ]
    zeros = 1 - sum(map(np.count_nonzero, kernels)) / sum(kernel.size for kernel in kernels)
    assert scores["sparsity"] == pytest.approx(zeros, abs=1e-9)
    assert zeros == pytest.approx(sparsities[-1], abs=1e-3)

    if method in ("l1", "l2"):
        return  # what they remember is what relevance does
    shutil.copytree(whole.parent, tmp_path / "stopped")
    folder = RunFolder(tmp_path / "stopped" / config.name)
    last = folder.checkpoint(len(rows))
    last.unlink()  # as if it had been stopped in the last epoch
    folder.model.unlink()
    said = []
    train_run(config, resume=True, runs=tmp_path / "stopped", verbose=0, say=said.append)
    assert f"going on after epoch {len(rows) - 1}" in said
    found, expected = state_of(last), state_of(RunFolder(whole).checkpoint(len(rows)))
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


def test_pruning_by_a_score_of_the_validation_needs_one(configured, tmp_path):
    for images, reason in ((0, "nothing is validated"), (1, "only one image is validated, which has none")):
        config = configured("relevance", f"training.validation_images={images}")
        with pytest.raises(InputError, match=f"goes by validation_CIDEr, and {reason}: set training"):
            train_run(config, runs=tmp_path, verbose=0, say=str)
    assert not list(tmp_path.iterdir())
