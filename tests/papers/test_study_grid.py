"""A study's file, its grid of runs, and error messages."""

import functools
from pathlib import Path

import keras
import pytest

from tfsparsecap.captioning.settings.build import make_captioner
from tfsparsecap.errors import InputError
from tfsparsecap.papers.study_checks import check_runs
from tfsparsecap.papers.study_grid import Study, grid, load_study
from tfsparsecap.pruning.supermask_loss import paper_sparsity_weight

from .paper_values import PUBLISHED_GRIDS, PUBLISHED_SETTINGS, WITHOUT_DENSE

CONFIGURED = Path(__file__).parents[2] / "configs" / "studies"
STUDIES = sorted(CONFIGURED.glob("*.yaml"))
FOLDER = ["data.folder=somewhere"]


def study(**changed):
    methods = {
        "Hard": {"start_from": "Dense", "settings": {"pruning.method": "magnitude"}},
        "Dense": {"settings": {"pruning": None, "training.keep_initial": True}},
        "SMP": {},
    }
    return Study(**{"name": "s", "methods": methods, "sparsities": [0.8, 0.95], "seeds": [1, 2], **changed})


def test_runs_come_after_the_runs_that_they_start_from():
    runs = {run.name: run for run in grid(study(), "s.yaml", "elsewhere")}
    assert next(iter(runs)) == "dense-s1" and len(runs) == 2 * 2 * 2 + 2
    hard = runs["hard-0.95-s2"]
    assert hard.start_from == "dense-s2"
    assert hard.config.training.start_from == "elsewhere/s/dense-s2"
    assert (hard.config.pruning.method, hard.config.pruning.sparsity) == ("magnitude", 0.95)
    assert (hard.config.seed, hard.config.name) == (2, "hard-0.95-s2")
    assert runs["dense-s1"].config.pruning is None and runs["dense-s1"].config.training.keep_initial


def test_runs_come_after_their_teachers():
    methods = {
        "Taught": {"teacher": "Dense", "start_from": "Gradual"},
        "Gradual": {"settings": {"pruning.method": "gradual"}},
        "Dense": {"settings": {"pruning": None}},
    }
    definition = study(methods=methods, seeds=[2], settings={"training.teacher": "runs/large"})
    runs = grid(definition, "s.yaml", "elsewhere")
    assert runs[0].config.training.teacher == ["runs/large"]
    names = [run.name for run in runs]
    assert names.index("dense-s2") < names.index("taught-0.95-s2") > names.index("gradual-0.95-s2")
    taught = next(run for run in runs if run.name == "taught-0.95-s2")
    assert taught.needs == ("gradual-0.95-s2", "dense-s2")
    assert taught.config.training.teacher == ["elsewhere/s/dense-s2"]
    assert taught.config.training.start_from == "elsewhere/s/gradual-0.95-s2"


def test_settings_are_merged_from_file_study_captioner_variant_and_method(tmp_path):
    (tmp_path / "base.yaml").write_text("training: {epochs: 9, batch_size: 9, warmup_steps: 9}\nseed: 9\n")
    definition = study(
        config="base.yaml",
        settings={"training.epochs": 8, "training.learning_rate": 0.8},
        captioners={"GRU": {"settings": {"model.cell": "gru", "training.learning_rate": 0.7}}, "none": None},
        variants={"slow": {"training.schedule": "constant"}},
        methods={"Dense": {"settings": {"pruning": None, "training.batch_size": 6}}},
        seeds=[3],
    )
    (run,) = grid(definition, tmp_path / "s.yaml")
    training = run.config.training
    assert (training.epochs, training.batch_size, training.warmup_steps) == (8, 6, 9)
    assert (training.learning_rate, training.schedule, run.config.seed) == (0.7, "constant", 3)
    assert (run.config.model.cell, run.name) == ("gru", "gru-dense-slow-s3")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"methods": {"A": {"start_from": "B"}}}, "start_from of method 'A': there is no label 'B'"),
        ({"methods": {"A": {"teacher": "B"}}}, "teacher of method 'A': there is no label 'B'"),
        ({"methods": {"A": {"teacher": "A"}}}, "A -> A start or learn from each other"),
        (
            {"methods": {"A": {"start_from": "B"}, "B": {"start_from": "A"}}},
            "A -> B -> A start or learn from each other",
        ),
        ({"methods": {"a b": {}, "A-B": {}}}, "two runs have the same folder name a_b-0.8-s1"),
        (
            {"methods": {"Ticket": {"start_from": "SMP"}, "SMP": {"sparsities": [0.8]}}},
            r"'Ticket' at sparsity 0\.95 starts from 'SMP', which is not run",
        ),
        (
            {
                "methods": {"A": {"start_from": "B"}, "B": {"captioners": ["gru"]}},
                "captioners": {"lstm": {}, "gru": {}},
            },
            "method 'A' starts from 'B', which is not run on the captioner 'lstm': add it to the captioners",
        ),
        (
            {"methods": {"A": {"settings": {"pruning": None}, "start_from": "B"}, "B": {}}},
            "method 'A' is dense and starts from 'B', which is pruned: start from a dense method",
        ),
        ({"settings": {"training.epoch": 3}}, r"unknown key training\.epoch in s\.yaml, method 'Dense'"),
        ({"settings": {"pruning.block_shape": 3}}, r"pruning\.block_shape in s\.yaml"),
        (
            {"settings": {"pruning.encoder": "D"}},
            r"pruning\.encoder in s\.yaml, .* is 'D': it should be true or false, or 'A', 'B' or 'C'$",
        ),
        (
            {"methods": {"A": {"captioners": ["lstn"]}}, "captioners": {"lstm": {}, "gru": {}}},
            "captioners of method 'A': there is no label 'lstn': did you mean lstm",
        ),
        (
            {"methods": {"A": {"captioners": ["lstm"]}}},
            r"s\.yaml: method 'A' has captioners, but the study has none: remove them",
        ),
    ],
)
def test_invalid_grids_are_errors(changed, message):
    with pytest.raises(InputError, match=message):
        grid(study(**changed), "s.yaml")


def test_command_line_settings_apply_to_all_runs():
    overrides = ["training.epochs=7", "data.folder=elsewhere"]
    definition = study(settings={"training.epochs": 3})
    runs = grid(definition, "s.yaml", overrides=overrides)
    assert {(run.config.training.epochs, run.config.data.folder) for run in runs} == {(7, "elsewhere")}
    assert sum(run.config.pruning is None for run in runs) == 2
    with pytest.raises(
        InputError, match=r"seed=4 on the command line: the study sets seed, use seeds in s\.y"
    ):
        grid(definition, "s.yaml", overrides=["seed=4"])
    with pytest.raises(InputError, match=r"unknown key training\.epoch .*or on the command line"):
        grid(definition, "s.yaml", overrides=["training.epoch=4"])


def test_paths_are_relative_to_the_file_that_contains_them(tmp_path):
    (tmp_path / "studies").mkdir()
    (tmp_path / "mine").mkdir()
    (tmp_path / "settings.yaml").write_text("seed: 5\ntraining: {epochs: 9}\n")
    (tmp_path / "mine" / "gru.yaml").write_text("model: {cell: gru}\n")
    (tmp_path / "studies" / "theirs.yaml").write_text(
        "name: theirs\nconfig: ../settings.yaml\nmethods: {SMP: {}}\n"
    )
    file = tmp_path / "mine" / "study.yaml"
    file.write_text("extends: ../studies/theirs.yaml\nname: mine\nmethods: {GRU: {config: gru.yaml}}\n")
    definition = load_study(file)
    runs = {run.method: run.config for run in grid(definition, file)}
    assert runs["SMP"].training.epochs == 9 and runs["GRU"].model.cell == "gru"
    file.write_text(file.read_text().replace("{GRU:", "{SMP: null, GRU:"))
    assert {run.method for run in grid(load_study(file), file)} == {"GRU"}


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
        ("name: a\nmethods: {A: {}}\nscore: cider\n", r"score in .* is 'cider': .*CIDEr"),
        ("name: a\nmethods: {A: {}}\nseeds: [1, 2, 1]\n", r"seeds in .* is \[1, 2, 1\]: .*repeated"),
        ("name: a\nmethods: {A: {}}\nsparsities: [0.8, 0.80]\n", "sparsities in .*repeated"),
        (
            "name: a\nmethods: {A: {}}\nsettings: {pruning.sparsity: 0.5}\n",
            r"settings in .*sets pruning\.sparsity for each run: use sparsities",
        ),
        (
            "name: a\nmethods: {A: {settings: {training.start_from: runs/a}}}\n",
            r"methods\.A\.settings in .*training\.start_from for each run: use start_from",
        ),
        (
            "name: a\nmethods: {A: {settings: {pruning: {method: gradual, sparsity: 0.5}}}}\n",
            r"methods\.A\.settings in .*sets pruning\.sparsity for each run: use sparsities",
        ),
        ("name: a\nmethods: {A: {}}\nvariants: {v: {seed: 3}}\n", r"variants\.v in .*use seeds"),
        ("name: a\nmethods: {A: null}\n", "methods in"),
        ("name: a\nmethods: {A: {}}\nseeds: []\n", r"seeds in .* is \[\]: give one value or more"),
        ("methods: {A: {}}\n", r"name is missing in .*s\.yaml: add it"),
        ("name: a\nmodel: {kind: up_down}\n", "has the settings of one run: train it with"),
        ("- a\n", "has no settings"),
        ("a: [", "is not YAML"),
    ],
)
def test_invalid_files_are_errors(text, message, tmp_path):
    (tmp_path / "s.yaml").write_text(text)
    with pytest.raises(InputError, match=message):
        load_study(tmp_path / "s.yaml")
    with pytest.raises(InputError, match="there is no file"):
        load_study(tmp_path / "none.yaml")
    with pytest.raises(
        InputError, match=r"there is no file studies/none: .* studies/ and a name: .* smp_table4"
    ):
        load_study("none")
    assert load_study("smp_table4").name == "smp_table4"


@pytest.fixture(scope="module")
def runs_of():
    """Runs of a study's file by its name; each file is read once."""
    return functools.cache(
        lambda name: grid(
            load_study(CONFIGURED / f"{name}.yaml"), CONFIGURED / f"{name}.yaml", "runs", FOLDER
        )
    )


@pytest.mark.slow
@pytest.mark.parametrize("file", STUDIES, ids=[file.stem for file in STUDIES])
def test_no_configured_study_fails_because_of_its_settings(file, runs_of):
    assert load_study(file).name == file.stem and len(runs_of(file.stem)) >= 4
    check_runs(runs_of(file.stem))
    for run in runs_of(file.stem):  # photographs have the size of the papers' images
        encoder, kind = run.config.model.encoder, run.config.data.kind
        assert encoder is None or kind == "scenes" or encoder.image_size == 224


@pytest.mark.parametrize("name", PUBLISHED_GRIDS)
def test_methods_and_sparsities_are_the_papers(name, runs_of):
    sparsity_sets = {}
    for run in runs_of(name):
        if run.sparsity is not None:
            sparsity_sets.setdefault(run.method, set()).add(run.sparsity)
    assert sparsity_sets == {method: set(sparsities) for method, sparsities in PUBLISHED_GRIDS[name].items()}
    assert any(run.sparsity is None for run in runs_of(name)) == (name not in WITHOUT_DENSE)


def concerns(about, run):
    """Whether values for some methods concern a run."""
    pruned = run.config.pruning.method if run.config.pruning else "dense"
    if about.startswith("all"):
        without = about.removeprefix("all").removeprefix(" but ")
        return run.method != without and (without, pruned) != ("hard", "magnitude")
    kinds = {"sparse": pruned != "dense", "retrained": pruned == "magnitude" and run.start_from}
    return bool(kinds.get(about)) or about == pruned or run.method in about.split(" and ")


@pytest.mark.parametrize(
    ("place", "studies", "about", "values"),
    PUBLISHED_SETTINGS,
    ids=[f"{p}: {a}" for p, _, a, _ in PUBLISHED_SETTINGS],
)
def test_settings_are_the_papers(place, studies, about, values, runs_of):
    for name in studies:
        runs = [run for run in runs_of(name) if concerns(about, run)]
        assert runs or len(studies) > 1
        for run in runs:
            settings = run.config.model_dump()
            for key, value in values.items():
                setting = functools.reduce(lambda section, part: section[part], key.split("."), settings)
                assert setting == pytest.approx(value) if isinstance(value, float) else setting == value, (
                    f"{name}, {run.name}: {key} is {setting}, but {value} in {place}"
                )


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        # RNN-SMP, Tables 3 and 4; SMP, Figure 3.
        *((name, (5, 5, 10, 20)) for name in ("smp_figure3_lstm", "rnn_smp_table4", "rnn_smp_table5")),
        # SMP, caption of Figure 4.
        ("smp_figure4_up_down", (80, 80, 80, 120)),
        ("smp_figure4_ort", (120, 120, 80, 120)),
    ],
)
def test_weights_of_the_sparsity_loss_are_the_papers(name, weights, runs_of):
    smp = [run for run in runs_of(name) if run.method == "SMP (papers)"]
    computed_weights = {
        run.sparsity: paper_sparsity_weight(run.config.pruning.options["paper"], run.sparsity) for run in smp
    }
    assert [computed_weights[sparsity] for sparsity in sorted(computed_weights)] == pytest.approx(weights)


@pytest.mark.parametrize(
    ("name", "key", "values"),
    [
        *((name, "initial_logit", [5.0, 2.5, 0.0, -2.5, -5.0]) for name in ("smp_table5", "rnn_smp_table1")),
        *((name, "sparsity_weight", [1.0, 2.0, 5.0, 10.0]) for name in ("smp_table6", "rnn_smp_table2")),
    ],
)
def test_ablations_of_smp_have_the_papers_values(name, key, values, runs_of):
    assert [run.config.pruning.options[key] for run in runs_of(name)] == values


#: Parameters of captioners that several tables have.
KNOWN = {}


def millions(config):
    """The size of a captioner, in millions of parameters."""
    base = config.data.radix_base
    key = config.model.model_dump_json(), base, config.data.max_length
    if key not in KNOWN:
        with keras.StatelessScope():  # shapes without values
            # Digits, and as in the published 771 tokens of base 768 three special ones.
            KNOWN[key] = make_captioner(config, base + 3 if base else 10_000).count_params() / 1e6
    return KNOWN[key]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "parameters"),
    [
        (2, [55.4, 40.7, 26.0, 16.7, 4.1, 15.0, 8.4, 4.2, 2.6]),
        (6, [55.4, 46.2, 46.0, 45.7, 45.5]),
        (7, [55.4, 40.7, 33.4, 33.4, 26.0, 18.7]),
        (8, [55.4, 26.0, 26.0, 26.0]),
        (9, [55.4, 39.7, 34.4, 18.7]),
        (10, [55.4, 53.9, 52.3, 50.7, 50.7]),
    ],
)
def test_captioners_in_acorts_tables_have_the_published_sizes(number, parameters, runs_of):
    sizes = [millions(run.config) for run in runs_of(f"acort_table{number}")]
    assert sizes == pytest.approx(parameters, abs=0.05)


def test_a_name_that_no_study_has_lists_those_of_the_package():
    with pytest.raises(
        InputError, match=r"no file studies/nosuch: check .* studies/ and a name: acort_table10, "
    ):
        load_study("studies/nosuch")
    with pytest.raises(InputError, match=r"did you mean .*flickr8k_papers\.yaml\?"):
        load_study("studies/flickr8k_paper")
