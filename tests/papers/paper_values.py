"""Values copied from the papers, with their place: SMP, RNN-SMP and ACORT (docs/results/papers.md)."""

FOUR, THREE = (0.8, 0.9, 0.95, 0.975), (0.95, 0.975, 0.9875)
HARD = ("Hard (class-blind)", "Hard (class-uniform)", "Hard (class-distribution)")
FIGURE_3 = dict.fromkeys(["SMP (papers)", "Gradual", *HARD, "SNIP", "Lottery (class-blind)"], FOUR)
FIGURE_5 = [f"{method} ({scheme})" for method in ("SMP (papers)", "Gradual") for scheme in "ABC"]
#: Methods and sparsities of the papers' tables and figures. Figures: the published numbers behind them.
PUBLISHED_GRIDS = {
    "smp_figure3_lstm": FIGURE_3,
    "smp_figure3_gru": FIGURE_3,
    "smp_figure4_up_down": {
        "SMP (papers)": (*THREE, 0.991),
        **dict.fromkeys(
            ["Gradual", *HARD[1:], "SNIP", "Lottery (class-uniform)", "Lottery (gradual)"], THREE
        ),
        **dict.fromkeys(["Hard (class-blind)", "Lottery (class-blind)"], (0.95,)),
    },
    "smp_figure4_ort": {
        **dict.fromkeys(["SMP (papers)", "Gradual", "Lottery (gradual)"], (*THREE, 0.991)),
        **dict.fromkeys([*HARD, "SNIP"], THREE),
    },
    "smp_figure5_lstm": dict.fromkeys([*FIGURE_5, "Hard-blind (B)", "Hard-blind (C)"], FOUR),
    "smp_figure5_gru": dict.fromkeys([*FIGURE_5, "Hard-blind (B)", "Hard-blind (C)"], FOUR),
    "smp_table4": {"Large, SMP (papers) (A)": FOUR},
    "smp_table5": {"SMP (papers)": (0.8,)},
    "smp_table6": {"SMP (papers)": (0.9,)},
    "rnn_smp_table1": {"SMP (papers)": (0.8,)},
    "rnn_smp_table2": {"SMP (papers)": (0.9,)},
    "rnn_smp_table3": dict.fromkeys(["SMP (papers)", "Gradual", *HARD], FOUR),
    "rnn_smp_table4": dict.fromkeys(["SMP (papers)", "Gradual", *HARD], FOUR),
    "rnn_smp_table5": {"SMP (papers)": FOUR},
    "rnn_smp_table6": {"LSTM-M, SMP (papers)": FOUR},
    "rnn_smp_table7": {"SMP (papers)": FOUR},
}

#: Studies of ablations, which have no dense model.
WITHOUT_DENSE = ("smp_table5", "smp_table6", "rnn_smp_table1", "rnn_smp_table2")
SOFT_ATTENTION = [name for name in PUBLISHED_GRIDS if "figure4" not in name]
WITH_INCEPTION = [name for name in SOFT_ATTENTION if name != "smp_table4"]
FIGURES_4 = ["smp_figure4_up_down", "smp_figure4_ort"]
FINE_TUNED = ["smp_figure5_lstm", "smp_figure5_gru", "smp_table4", "rnn_smp_table5"]
ACORT = [f"acort_table{number}" for number in (2, 6, 7, 8, 9, 10)]
#: Values of the papers: place, studies, methods that they are about, setting -> value.
PUBLISHED_SETTINGS = [
    ("all, section 5.1; RNN-SMP, section 4.1", [*PUBLISHED_GRIDS, *ACORT], "all", {"decoding.plain": True}),
    (
        "RNN-SMP, sections 4.1 and 4.2",
        SOFT_ATTENTION,
        "all",
        {
            "data.minimum_count": 5,
            "data.max_length": 20 + 1,
            "training.batch_size": 32,
            "training.learning_rate": 1e-2,
            "training.final_learning_rate": 1e-5,
            "training.schedule": "cosine",
            "training.adam_epsilon": 1e-2,  # SMP, section 5.1
            "training.weight_decay": 1e-5 / 1e-2,  # TensorFlow's l2_loss divided by Adam's epsilon
            "decoding.beam": 3,
        },
    ),
    (
        "RNN-SMP, section 4.1",
        WITH_INCEPTION,
        "all but LSTM-S, dense",
        {
            "model.embedding_size": 256,
            "model.rnn_size": 512,
            "model.attention_size": 512,
            "model.value_size": 512,
            "model.encoder.network": "inception_v1",
            "model.encoder.layer": "Mixed_4f",
            "model.encoder.image_size": 224,
            "model.encoder.trainable": False,
        },
    ),
    (
        "RNN-SMP, section 4.1",
        WITH_INCEPTION,
        "dense",
        {"model.dropout": 0.35, "model.input_dropout": 0.35, "model.attention_dropout": 0.1},
    ),
    (
        "RNN-SMP, section 4.1",
        SOFT_ATTENTION,
        "sparse",
        {"model.dropout": 0.11, "model.input_dropout": 0.11, "model.attention_dropout": 0.03},
    ),
    ("SMP, section 5.1", WITH_INCEPTION, "all but hard", {"training.epochs": 30}),
    ("SMP, section 5.1", [*WITH_INCEPTION, *FIGURES_4], "retrained", {"training.epochs": 10}),
    ("SMP, section 5.1", FIGURES_4, "all but hard", {"training.epochs": 15}),
    (
        "RNN-SMP, section 4.1",
        FINE_TUNED,
        "all but Dense decoder",
        {
            "training.fine_tune.epochs": 10,
            "training.fine_tune.learning_rate": 1e-3,
            "training.fine_tune.schedule": "cosine",
        },
    ),
    ("SMP, section 5.1", [*SOFT_ATTENTION, *FIGURES_4], "gradual", {"pruning.frequency": 1000}),
    (
        "RNN-SMP, Table 6",
        ["rnn_smp_table6"],
        "LSTM-S, dense",
        {"model.embedding_size": 64, "model.rnn_size": 128, "model.attention_size": 96},
    ),
    (
        "SMP, section 5.5",
        ["smp_table4"],
        "Dense-M and Dense-S",
        {"model.rnn_size": 128, "model.attention_size": 128},
    ),
    ("SMP, section 5.5", ["smp_table4"], "all", {"model.encoder.image_size": 224}),
    ("SMP, section 5.5", ["smp_table4"], "Dense-L and sparse", {"model.encoder.width": 1.0}),
    ("SMP, section 5.5", ["smp_table4"], "Dense-M", {"model.encoder.width": 0.5}),
    ("SMP, section 5.5", ["smp_table4"], "Dense-S", {"model.encoder.width": 0.25}),
    (
        "SMP, section 5.1: Adam and cosine schedule",
        ["smp_figure4_up_down"],
        "all",
        {"training.adam_epsilon": 1e-2, "training.schedule": "cosine"},
    ),
    (
        "SMP and ACORT, section 5.1: the schedule of ORT",
        ["smp_figure4_ort", *ACORT],
        "all",
        {"training.schedule": "noam", "training.restore_best": True},
    ),
    ("ACORT, section 5.1", ["acort_table2"], "all", {"decoding.beam": 2}),
    (
        "ACORT, section 5.5",
        ACORT[1:],
        "all",
        {"decoding.beam": 1, "model.size": 512, "model.hidden_size": 2048},
    ),
]
