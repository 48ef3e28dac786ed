"""Texts and labels of the classifiers, and what the command refuses."""

import gzip
import json

import numpy as np

from benchmarks import text_classifiers


def test_captions_become_word_ids_and_labels(tmp_path, monkeypatch):
    monkeypatch.setattr(text_classifiers, "TESTED", 1)
    rows = [
        {"captions": ["A cat."] * 5, "labels": ["cat"]},
        {"captions": ["A dog and a cat."] * 5, "labels": ["cat", "dog"]},
        {"captions": ["too few"], "labels": ["dog"]},
        {"captions": ["without labels"] * 5, "labels": []},
    ]
    file = tmp_path / "captions.jsonl.gz"
    with gzip.open(file, "wt") as lines:
        lines.writelines(json.dumps(row) + "\n" for row in rows)
    texts = text_classifiers.Texts(file)
    tokens, labels = (np.concatenate(parts) for parts in zip(texts.train, texts.test, strict=True))
    assert tokens.shape == (2, 64) and sorted((tokens != 0).sum(1)) == [10, 25]
    assert sorted(labels.tolist()) == [[1, 0], [1, 1]]  # cat, dog
