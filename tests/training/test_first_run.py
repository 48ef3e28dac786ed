import json

import pytest

from tests.training.training_runs import arrays, assert_same_arrays, train
from tfsparsecap.errors import InputError
from tfsparsecap.settings.checks import check_settings
from tfsparsecap.settings.files import load_config
from tfsparsecap.training.first_run import check_fit, first_and_second

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


def changed(settings, changes, *more):
    """Settings whose first run has `changes`, dotted keys, besides those of `settings`."""
    return [*settings, *(f"training.first.{change}" for change in changes), *more]


@pytest.mark.usefixtures("quick_training")
@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (["data.max_length=9"], [], r"has data\.max_length=9, this one 6: set the same value"),
        (["data.radix_base=5"], [], r"has data\.radix_base=5, this one null: set the same value"),
        (["model.rnn_size=16"], [], r"has another captioner, .*kernel of shape .* set the same sizes"),
        (["model.cell=gru"], [], r"has another captioner, .* set the same sizes"),
        ([], ["pruning.method=frozen"], r"is not pruned, so there are no zeros for pruning\.method=frozen"),
        ([], ["pruning.method=lottery", "pruning.rounds=0"], r"set training\.keep_initial=true"),
        (
            ["training.slim.iterations=1"],
            [],
            r"set model\.encoder\.slimmed=.*small_first/encoder\.keras for this one",
        ),
    ],
)
def test_a_first_run_that_the_second_cannot_start_from_is_not_trained(
    tmp_path, settings, first, second, message
):
    with pytest.raises(InputError, match=f"training\\.first: the run that is trained first .*{message}"):
        train(tmp_path, changed(settings, first, *second))
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("quick_training")
def test_features_of_the_first_run_that_cannot_be_compared_are_refused(settings, monkeypatch):
    monkeypatch.setattr("tfsparsecap.training.teachers.is_grid", lambda positions: False)
    first, second = first_and_second(load_config(None, [*settings, "training.feature_weight=1"]))
    with pytest.raises(InputError, match=r"feature_weight needs .* the run of training\.first does not have"):
        check_fit(first, second)


def test_a_second_run_that_the_data_do_not_suffice_for_is_refused_first(tmp_path, settings):
    more = ["training.batch_size=999", "training.teacher_captions=0"]
    with pytest.raises(InputError, match="fewer than one batch of 999"):
        train(tmp_path, changed(settings, ["training.batch_size=10"], *more))
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("quick_training")
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (["model.dropout=0.3", "data.minimum_count=2"], []),
        (["training.keep_initial=true"], ["pruning.method=lottery", "pruning.rounds=0"]),
        (["training.slim.iterations=1"], ["model.encoder.slimmed=runs/small_first/encoder.keras"]),
    ],
)
def test_a_first_run_that_the_second_can_start_from_is_accepted(settings, first, second):
    config = load_config(None, changed(settings, first, "training.first.model.encoder.slimmed=null", *second))
    check_fit(*first_and_second(config))


def test_a_run_that_only_starts_from_the_first_one_has_no_teacher(settings):
    config = load_config(None, [*settings, "training.teacher_captions=0", "training.teacher_weight=0"])
    first, second = first_and_second(config)
    assert second.training.start_from == "runs/small_first" and second.training.teacher == []
    assert first.training.teacher_weight == 0.5
    with pytest.raises(InputError, match="nothing is learned from"):
        check_settings(load_config(None, ["training.teacher=runs/x", "training.teacher_weight=0"]))
