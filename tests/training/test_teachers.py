"""Knowledge distillation in whole runs, and teachers that do not fit."""

import numpy as np
import pytest

from tfsparsecap.errors import InputError

from .training_runs import arrays, history, resume_last_epoch, train

FROZEN = ["model.encoder.trainable=false", "pruning=null"]


@pytest.mark.slow
@pytest.mark.usefixtures("quick_training")
def test_a_run_learns_from_teachers_with_other_sizes_and_resumes(tiny_settings, tmp_path):
    settings = [*tiny_settings, *FROZEN, f"data.cache_folder={tmp_path / 'cache'}"]
    teacher, _, _ = train(tmp_path, [*settings, "name=teacher", "model.rnn_size=24", "training.epochs=1"])
    taught = [*settings, f"training.teacher={teacher.path}", "data.cached_views=2", "training.epochs=2"]
    folder, _, _ = train(tmp_path, taught)
    alone, _, _ = train(tmp_path, [*settings, "name=alone", "data.cached_views=2", "training.epochs=2"])
    assert history(folder)[0]["loss"] != history(alone)[0]["loss"]
    resume_last_epoch(folder, folder.load_config())
    features = ["name=features", "model.encoder.trainable=true", "training.feature_weight=2"]
    folder, _, _ = train(tmp_path, [*settings, f"training.teacher={teacher.path}", *features])
    assert float(history(folder)[0]["loss"]) > float(history(alone)[0]["loss"])
    weights = arrays(folder.checkpoint_files()[-1])
    assert all(np.isfinite(array).all() for array in weights.values() if array.dtype.kind == "f")


@pytest.mark.slow
def test_a_teacher_that_does_not_fit_is_rejected(tiny_settings, tiny_run, tmp_path):
    for wrong, message in (
        (
            "data.max_length=9",
            r"training\.teacher: .* has data\.max_length=\d+, this one 9: set the same value",
        ),
        ("data.vocabulary_size=10", r"training\.teacher: .* has another vocabulary"),
        (f"training.teacher={tmp_path / 'absent'}", r"training\.teacher: .*absent"),
    ):
        with pytest.raises(InputError, match=message):
            train(tmp_path, [*tiny_settings, f"training.teacher={tiny_run}", wrong])
    assert not list(tmp_path.iterdir())
