"""Runs with each pruning method: the sparsity after each epoch, and the same weights after resuming."""

import numpy as np
import pytest

from tfsparsecap.captioning.inference.finished_run import FinishedRun
from tfsparsecap.errors import InputError

from .training_runs import history, resume_last_epoch, train

#: Steps that take as little time as possible: two per epoch.
SMALL = ["training.batch_size=50", "data.max_length=4", "training.validation_images=0"]
BY_LOSS = ["pruning.metric=loss", "pruning.lower_bound=100", "pruning.pruning_percentage=0.4"]
#: method -> settings, sparsity after each epoch; None stands for any value. `l1` and `l2` differ from
#: `relevance` in a formula, which tests/pruning compares.
METHODS = {
    "gradual": (["pruning.sparsity=0.7"], (None, 0.7)),
    "lottery": (["pruning.sparsity=0.7"], (None, 0.7)),
    # A decision after an epoch takes effect with the first step of the next one.
    "relevance": ([*BY_LOSS, "training.epochs=3"], (0.0, 0.4, 0.64)),
    # The gates are sampled; a resumed run must sample the same ones.
    "supermask_loss": (["pruning.end=0.8", "pruning.sparsity=0.7"], (None, 0.7)),
    # Uses the first epoch and half of the second.
    "snip": (["pruning.batches=3", "pruning.sparsity=0.7"], (0.0, 0.7)),
    "magnitude": (["pruning.begin=0.5", "pruning.sparsity=0.7"], (0.0, 0.7)),
}


@pytest.mark.slow
@pytest.mark.usefixtures("quick_training")
@pytest.mark.parametrize(
    "method",
    ["gradual", *(pytest.param(name, marks=pytest.mark.slow) for name in METHODS if name != "gradual")],
)
def test_each_method_prunes_on_schedule_and_resumes(method, tiny_settings, tmp_path):
    more, sparsities = METHODS[method]
    settings = [*tiny_settings, *SMALL, f"pruning.method={method}", *more]
    folder, scores, _ = train(tmp_path, settings)
    for row, sparsity in zip(history(folder), sparsities, strict=True):
        assert sparsity is None or float(row["sparsity"]) == pytest.approx(sparsity, abs=5e-3)
    captioner = FinishedRun.load(folder.path).captioner
    inside = {id(variable) for variable in captioner.encoder.variables}
    kernels = [
        np.asarray(variable)
        for variable in captioner.variables
        if id(variable) not in inside and variable.path.endswith(("kernel", "embeddings"))
    ]
    zeros = 1 - sum(map(np.count_nonzero, kernels)) / sum(kernel.size for kernel in kernels)
    assert scores["sparsity"] == pytest.approx(zeros, abs=1e-9)
    assert zeros == pytest.approx(sparsities[-1], abs=5e-3)
    assert f"resuming after epoch {len(sparsities) - 1}" in resume_last_epoch(folder, settings)


@pytest.mark.slow
@pytest.mark.usefixtures("quick_training")
def test_pruning_by_a_validation_score_needs_enough_validation_images(tiny_settings, tmp_path):
    by_cider = ["pruning.method=relevance", "pruning.metric=validation_CIDEr", "pruning.lower_bound=0"]
    for images in (0, 1):
        settings = [*tiny_settings, *by_cider, f"training.validation_images={images}"]
        with pytest.raises(InputError, match=f"needs validation_CIDEr, but there are {images} validation"):
            train(tmp_path, settings)
    assert not list(tmp_path.iterdir())
