"""The translation benchmark: its data, and that a model of keras_hub's layers is pruned and resumed."""

import json

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import translation

pytest.importorskip("keras_hub")
pytest.importorskip("sacrebleu")
WORDS = {"ein": "a", "hund": "dog", "katze": "cat", "mann": "man", "rennt": "runs", "sitzt": "sits", ".": "."}


@pytest.fixture
def folder(tmp_path):
    """Sentences that are translated word by word."""
    random = np.random.default_rng(0)
    for split, count in (("train", 64), ("val", 32), ("test_2016_flickr", 20)):
        german = [
            f"Ein {random.choice(['Hund', 'Katze', 'Mann'])} {random.choice(['rennt', 'sitzt'])} ."
            for _ in range(count)
        ]
        english = [" ".join(WORDS[word] for word in line.lower().split()) for line in german]
        for language, lines in (("de", german), ("en", english)):
            (tmp_path / f"{split}.{language}").write_text("\n".join(lines) + "\n")
    return tmp_path


@pytest.mark.slow
def test_a_translator_learns_is_pruned_to_the_share_and_is_not_trained_again(folder, monkeypatch, capsys):
    for name, value in {"PIECES": 60, "SIZE": 32, "HIDDEN": 32, "HEADS": 2, "LAYERS": 1, "BATCH": 8}.items():
        monkeypatch.setattr(translation, name, value)
    for name, value in {"LENGTH": 8, "DENSE_EPOCHS": 32, "EPOCHS": 1}.items():
        monkeypatch.setattr(translation, name, value)
    pruned = translation.pruned

    def pruned_eagerly(*arguments):  # compiling takes longer than this training
        tf.config.run_functions_eagerly(True)
        try:
            return pruned(*arguments)
        finally:
            tf.config.run_functions_eagerly(False)

    monkeypatch.setattr(translation, "pruned", pruned_eagerly)
    command = [str(folder), str(folder / "out"), "--methods", "relevance", "--sparsities", "0.5"]
    translation.main(command)
    rows = [json.loads(line) for line in (folder / "out" / "results.jsonl").read_text().splitlines()]
    assert [(row["method"], row["sparsity"]) for row in rows] == [("dense", 0.0), ("relevance", 0.5)]
    assert rows[0]["bleu"] > 60 and rows[0]["reached"] == 0.0
    assert rows[1]["reached"] == pytest.approx(0.5, abs=0.01)
    monkeypatch.setattr(translation, "fit", None)
    translation.main(command)
    assert capsys.readouterr().out.split()[-4:] == [
        "dense",
        f"{rows[0]['bleu']:.1f}",
        "relevance",
        f"{rows[1]['bleu']:.1f}",
    ]
    monkeypatch.setitem(translation.METHODS, "relevance", (1e-3, 1e-3))
    with pytest.raises(TypeError, match="NoneType"):  # another weight decay is another training
        translation.main(command)
