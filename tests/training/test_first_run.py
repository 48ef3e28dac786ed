import json

import pytest

from tests.training.training_runs import arrays, assert_same_arrays, train
from tfsparsecap.errors import InputError
from tfsparsecap.settings.files import load_config
from tfsparsecap.training.first_run import first_and_second

FIRST = "training.first={pruning: null, model: {rnn_size: 8}, training: {epochs: 1, learning_rate: 0.02}}"


@pytest.fixture
def settings(tiny_settings):
    return [*tiny_settings, "name=small", "model.rnn_size=8", "training.teacher_captions=2", FIRST]


def test_a_run_is_trained_first_starts_the_next_one_and_teaches_it(tmp_path, quick_training, settings):
    second, scores, messages = train(tmp_path, settings)
    first = tmp_path / "small_first"
    assert any(f"training {first} first" in message for message in messages)
    trained = load_config(first / "config.yaml")
    assert (trained.name, trained.pruning, trained.training.epochs) == ("small_first", None, 1)
    assert trained.training.learning_rate == 0.02 and trained.training.start_from is None
    own = second.load_config()
    assert own.pruning is not None and own.training.first is None
    assert own.training.start_from == str(first) and own.training.teacher == [str(first)]
    assert f"starting with the weights of {first}" in messages
    assert (first / "vocabulary.txt").read_text() == second.vocabulary.read_text()
    written = json.loads(second.teacher_captions.read_text())
    assert written and all(len(captions) <= 2 for captions in written.values())
    assert (
        scores["run"] == str(second.path)
        and json.loads((first / "scores_test.json").read_text())["CIDEr"] >= 0
    )


def test_stopped_runs_are_resumed_and_finished_ones_are_kept(tmp_path, quick_training, settings):
    second, _, _ = train(tmp_path, settings)
    expected = arrays(second.checkpoint_files()[-1])
    first = tmp_path / "small_first"
    kept = (first / "model.keras").stat().st_mtime_ns
    with pytest.raises(InputError, match=r"small exists: pass --resume"):
        train(tmp_path, settings)

    second.checkpoint_files()[-1].unlink()
    second.model.unlink()
    _, _, messages = train(tmp_path, settings, resume=True)
    assert f"{first} is finished and is not trained again" in messages
    assert_same_arrays(arrays(second.checkpoint_files()[-1]), expected)
    assert (first / "model.keras").stat().st_mtime_ns == kept

    # Stopped during the first run: the second has no folder yet.
    second.path.rename(tmp_path / "elsewhere")
    (first / "model.keras").unlink()
    with pytest.raises(InputError, match=r"small_first exists: pass --resume"):
        train(tmp_path, settings)
    _, _, messages = train(tmp_path, settings, resume=True)
    assert any("resuming after epoch 1" in message for message in messages)
    assert_same_arrays(arrays(second.checkpoint_files()[-1]), expected)


def test_other_settings_of_the_first_run_and_nothing_to_resume_are_refused(tmp_path, tiny_run, settings):
    with pytest.raises(InputError, match=r"no run to resume in .*small_first: omit --resume"):
        train(tmp_path, settings, resume=True)
    (tmp_path / "small_first").symlink_to(tiny_run)
    with pytest.raises(InputError, match=r"the run in .*small_first has .* pass name="):
        train(tmp_path, settings)
    assert [path.name for path in tmp_path.iterdir()] == ["small_first"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("training.first={training: {epoch: 1}}", "unknown key training.epoch in training.first"),
        ("training.first={pruning: {method: smp}}", "pruning.method"),
        ("training.first={name: other}", "training.first contains name"),
        ("training.first={training: {first: {}}}", "training.first contains first"),
        ("training.first={training: 3}", "training"),
        ("training.start_from=elsewhere", "training.start_from and training.first are both set"),
        ("training.teacher=elsewhere", "training.teacher and training.first are both set"),
        ("training.distribution=multi_worker", "training.first trains two runs in one process"),
    ],
)
def test_contradictions_are_reported_before_anything_is_trained(tmp_path, settings, more, message):
    with pytest.raises(InputError, match=message):
        train(tmp_path, [*settings, more])
    assert not list(tmp_path.iterdir())


def test_settings_of_the_command_line_hold_for_both_runs(settings):
    first, second = first_and_second(load_config(None, [*settings, "seed=7", "training.epochs=9"]), "runs")
    assert (first.seed, second.seed) == (7, 7)
    assert (first.training.epochs, second.training.epochs) == (1, 9)
    nested = load_config(None, [*settings, "training.first.training.epochs=5"])
    assert first_and_second(nested)[0].training.epochs == 5
