"""A study's file and its grid, and the sentences where something in it is wrong."""

from pathlib import Path

import pytest

from tfsparsecap.errors import InputError
from tfsparsecap.settings.checks import check_settings
from tfsparsecap.studies.study import Study, grid, load_study

STUDIES = sorted((Path(__file__).parents[2] / "configs" / "studies").glob("*.yaml"))


def study(**changed):
    methods = {
        "Hard": {"start_from": "Dense", "settings": {"pruning.method": "magnitude"}},
        "Dense": {"settings": {"pruning": None, "training.keep_initial": True}},
        "SMP": {},
    }
    return Study(**{"name": "s", "methods": methods, "sparsities": [0.8, 0.95], "seeds": [1, 2], **changed})


def test_the_grid_is_all_methods_at_all_sparsities_and_seeds():
    runs = grid(study(), "s.yaml")
    seen = {(run.method, run.sparsity, run.seed) for run in runs}
    sparse = {(m, s, n) for m in ("Hard", "SMP") for s in (0.8, 0.95) for n in (1, 2)}
    assert seen == sparse | {("Dense", None, 1), ("Dense", None, 2)}
    assert len(runs) == len(seen)


def test_runs_come_after_those_that_they_start_from_and_have_their_settings():
    runs = {run.name: run for run in grid(study(), "s.yaml", "elsewhere")}
    assert next(iter(runs)) == "dense-s1"
    hard = runs["hard-0.95-s2"]
    assert hard.start_from == "dense-s2"
    assert hard.config.training.start_from == "elsewhere/s/dense-s2"
    assert (hard.config.pruning.method, hard.config.pruning.sparsity) == ("magnitude", 0.95)
    assert (hard.config.seed, hard.config.name) == (2, "hard-0.95-s2")
    assert runs["dense-s1"].config.pruning is None and runs["dense-s1"].config.training.keep_initial


def test_a_run_starts_from_the_one_of_its_own_sparsity():
    methods = {
        "Gradual": {"settings": {"pruning.method": "gradual"}},
        "Ticket": {"start_from": "Gradual", "settings": {"pruning.method": "lottery", "pruning.rounds": 0}},
    }
    runs = {run.name: run for run in grid(study(methods=methods), "s.yaml")}
    assert runs["ticket-0.8-s1"].start_from == "gradual-0.8-s1"
    methods["Gradual"]["sparsities"] = [0.8]
    with pytest.raises(
        InputError, match=r"'Ticket' at sparsity 0\.95 starts from 'Gradual', which is not run"
    ):
        grid(study(methods=methods), "s.yaml")


def test_settings_come_from_file_study_captioner_variant_and_method_in_this_order(tmp_path):
    (tmp_path / "base.yaml").write_text("training: {epochs: 9, batch_size: 9, warmup_steps: 9}\nseed: 9\n")
    one = study(
        config="base.yaml",
        settings={"training.epochs": 8, "training.learning_rate": 0.8},
        captioners={"GRU": {"settings": {"model.cell": "gru", "training.learning_rate": 0.7}}, "none": None},
        variants={"slow": {"training.schedule": "constant"}},
        methods={"Dense": {"settings": {"pruning": None, "training.batch_size": 6}}},
        seeds=[3],
    )
    (run,) = grid(one, tmp_path / "s.yaml")
    training = run.config.training
    assert (training.epochs, training.batch_size, training.warmup_steps) == (8, 6, 9)
    assert (training.learning_rate, training.schedule, run.config.seed) == (0.7, "constant", 3)
    assert (run.config.model.cell, run.name) == ("gru", "gru-dense-slow-s3")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"methods": {"A": {"start_from": "B"}}}, "starts from 'B', which is none of the methods"),
        (
            {"methods": {"A": {"start_from": "B"}, "B": {"start_from": "A"}}},
            "A -> B -> A start from each other",
        ),
        ({"methods": {"a b": {}, "A-B": {}}}, "two runs would lie in the same folder a_b-0.8-s1"),
        ({"settings": {"training.epoch": 3}}, r"unknown key training\.epoch in s\.yaml, method 'Dense'"),
        ({"settings": {"pruning.block_shape": 3}}, r"pruning\.block_shape in s\.yaml"),
        (
            {"methods": {"A": {"captioners": ["lstn"]}}, "captioners": {"lstm": {}, "gru": {}}},
            "method 'A' is for 'lstn', which is none of the captioners: did you mean 'lstm'",
        ),
        ({"seeds": [1, 2, 1]}, "1 stands twice in seeds"),
        ({"sparsities": [0.8, 0.80]}, r"0\.8 stands twice in sparsities"),
        ({"settings": {"pruning.sparsity": 0.5}}, r"settings sets pruning\.sparsity, .* use sparsities"),
        (
            {"methods": {"A": {"settings": {"training.start_from": "runs/a"}}}},
            r"methods\.A\.settings sets training\.start_from, .* use start_from",
        ),
        ({"variants": {"v": {"seed": 3}}}, r"variants\.v sets seed, .* use seeds"),
    ],
)
def test_a_grid_that_cannot_be_is_said(changed, message):
    with pytest.raises(InputError, match=message):
        grid(study(**changed), "s.yaml")


def test_settings_on_the_command_line_win_and_are_those_of_all_runs():
    overrides = ["training.epochs=7", "data.folder=elsewhere"]
    one = study(settings={"training.epochs": 3})
    runs = grid(one, "s.yaml", overrides=overrides)
    assert {(run.config.training.epochs, run.config.data.folder) for run in runs} == {(7, "elsewhere")}
    assert sum(run.config.pruning is None for run in runs) == 2
    with pytest.raises(
        InputError, match=r"seed=4 on the command line: the study sets seed, use seeds in s\.y"
    ):
        grid(one, "s.yaml", overrides=["seed=4"])
    with pytest.raises(InputError, match=r"unknown key training\.epoch .*or on the command line"):
        grid(one, "s.yaml", overrides=["training.epoch=4"])


def test_what_is_dense_is_told_by_all_settings_together(tmp_path):
    (tmp_path / "dense.yaml").write_text("pruning: null\n")
    one = study(
        config="dense.yaml", methods={"Dense": {}, "SMP": {"settings": {"pruning.method": "supermask"}}}
    )
    runs = grid(one, tmp_path / "s.yaml")
    assert [(run.method, run.sparsity) for run in runs if run.seed == 1] == [
        ("Dense", None),
        ("SMP", 0.8),
        ("SMP", 0.95),
    ]
    assert [run.config.pruning is None for run in runs if run.seed == 1] == [True, False, False]


def test_paths_are_those_of_the_file_that_they_stand_in(tmp_path):
    (tmp_path / "studies").mkdir()
    (tmp_path / "mine").mkdir()
    (tmp_path / "settings.yaml").write_text("seed: 5\ntraining: {epochs: 9}\n")
    (tmp_path / "mine" / "gru.yaml").write_text("model: {cell: gru}\n")
    (tmp_path / "studies" / "theirs.yaml").write_text(
        "name: theirs\nconfig: ../settings.yaml\nmethods: {SMP: {}}\nplot: {published_folder: curves}\n"
    )
    file = tmp_path / "mine" / "study.yaml"
    file.write_text("extends: ../studies/theirs.yaml\nname: mine\nmethods: {GRU: {config: gru.yaml}}\n")
    one = load_study(file)
    assert one.plot.published_folder == (tmp_path / "studies" / "curves").as_posix()
    runs = {run.method: run.config for run in grid(one, file)}
    assert runs["SMP"].training.epochs == 9 and runs["GRU"].model.cell == "gru"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "name: a\nmethods: {A: {}}\nsparsitys: [0.8]\n",
            "unknown key sparsitys in .*; did you mean sparsities",
        ),
        ("name: a\n", "methods is missing in"),
        ("name: a/b\nmethods: {A: {}}\n", "name in .* is 'a/b'"),
        ("name: a\nmethods: {A: {}}\nsparsities: [1.0]\n", r"sparsities\.0 in .* is 1\.0"),
        ("name: a\nmethods: {A: {startfrom: B}}\n", r"unknown key methods\.A\.startfrom"),
        ("name: a\nmethods: {A: {captioners: []}}\n", r"methods\.A\.captioners in .* is \[\]"),
        ("name: a\nmethods: {A: {}}\nplot: {score: cider}\n", r"plot\.score in .* is 'cider': .*CIDEr"),
        ("- a\n", "holds no settings"),
        ("a: [", "is no YAML"),
    ],
)
def test_a_file_that_is_no_study_is_said(text, message, tmp_path):
    (tmp_path / "s.yaml").write_text(text)
    with pytest.raises(InputError, match=message):
        load_study(tmp_path / "s.yaml")
    with pytest.raises(InputError, match="there is no file"):
        load_study(tmp_path / "none.yaml")


@pytest.mark.parametrize("file", STUDIES, ids=[file.stem for file in STUDIES])
def test_the_studies_of_the_papers_can_be_run(file):
    one = load_study(file)
    assert one.name == file.stem
    runs = grid(one, file)
    for run in runs:
        check_settings(run.config)
    assert len(runs) >= 4


def test_there_is_a_study_for_each_table():
    names = {file.stem for file in STUDIES}
    assert {"smp_table4", "smp_table5", "smp_table6", "relevance_table2", "relevance_table3"} <= names
    assert {f"rnn_smp_table{number}" for number in (3, 4, 5, 6)} <= names
    figures = ("3_lstm", "3_gru", "4_up_down", "4_ort", "5_lstm", "5_gru")
    assert {f"smp_figure{figure}" for figure in figures} <= names
