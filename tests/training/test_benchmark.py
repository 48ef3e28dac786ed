"""The benchmark of training steps measures every variant and prints what was measured."""

import json
import re

from tfsparsecap.training import benchmark


def test_measures_each_variant_as_often_as_asked():
    sizes = {"embedding_size": 16, "rnn_size": 16, "attention_size": 16}
    seconds = benchmark.measure(steps=2, batch_size=2, words=3, vocabulary_size=20, **sizes)
    assert seconds.keys() == benchmark.VARIANTS.keys()
    assert all(len(values) == 2 and min(values) > 0 for values in seconds.values())


def test_ratios_are_taken_pair_by_pair(monkeypatch, capsys):
    # The machine is twice as slow in the second round: only pairs tell that gates cost half as much again.
    measured = {"dense": [1.0, 2.0, 1.0], "gated": [1.5, 3.0, 1.5]}
    monkeypatch.setattr(benchmark, "measure", lambda **options: measured)
    benchmark.main(["--json"])
    assert json.loads(capsys.readouterr().out)["gated"] == {"milliseconds": 1500.0, "ratio": 1.5}
    benchmark.main([])
    assert re.search(r"gated.*1500.*1\.50", capsys.readouterr().out)
