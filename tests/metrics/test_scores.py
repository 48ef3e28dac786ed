"""Scores against pycocoevalcap used directly, and what happens to input that cannot be scored."""

import csv
import json

import pytest
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider

from tfsparsecap.errors import InputError
from tfsparsecap.metrics import exact_match, score

REFERENCES = {
    "a.jpg": ["A dog runs over the grass.", "the brown dog is running"],
    "b.jpg": ["Two men sit on a bench .", "two people, sitting"],
    "c.jpg": ["a girl in a pink dress climbs the stairs"],
}
CAPTIONS = {"a.jpg": "a brown dog runs", "b.jpg": "two men sit on a bench", "c.jpg": "a boy on the stairs"}


@pytest.fixture(scope="module")
def flickr(shared):
    """Per image four references and, as the caption to score, a person's fifth."""
    references = {}
    with open(shared / "data" / "flickr8k" / "captions.txt", newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            references.setdefault(row["image"], []).append(row["caption"])
    references = {image: references[image] for image in list(references)[:300]}
    return {image: texts[:4] for image, texts in references.items()}, {
        image: texts[4] for image, texts in references.items()
    }


def test_scores_equal_pycocoevalcap_on_its_own_tokens(flickr):
    from tfsparsecap.metrics.tokenize import ptb_tokenize

    references, captions = flickr
    tokenized = {image: ptb_tokenize(references[image]) for image in list(references)[:8]}
    results = {image: ptb_tokenize([captions[image]]) for image in tokenized}
    bleu, _ = Bleu(4).compute_score(tokenized, results, verbose=0)
    cider, _ = Cider().compute_score(tokenized, results)
    ours = score(
        {image: references[image] for image in tokenized},
        {image: captions[image] for image in tokenized},
        tokenizer="ptb",
    )
    assert list(ours) == ["BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "CIDEr"]
    assert list(ours.values()) == pytest.approx([*bleu, cider], rel=1e-9)


def test_light_tokens_score_as_ptb_tokens_do(flickr):
    assert score(*flickr) == pytest.approx(score(*flickr, tokenizer="ptb"), rel=1e-3)


def test_cider_equals_the_original_scorer(shared):
    with open(shared / "fixtures" / "cider_d" / "expected.json", encoding="utf-8") as file:
        expected = json.load(file)
    ours = score(expected["references"], expected["hypotheses"], metrics=["CIDEr"])
    assert ours["CIDEr"] == pytest.approx(expected["cider_d_mean"], abs=1e-3)


def test_nothing_is_printed_and_order_does_not_matter(capfd):
    scores = score(REFERENCES, CAPTIONS)
    assert score(REFERENCES, dict(reversed(CAPTIONS.items()))) == scores
    assert capfd.readouterr() == ("", "")


def test_one_metric_alone():
    assert list(score(REFERENCES, CAPTIONS, metrics=["CIDEr"])) == ["CIDEr"]


def test_perfect_and_empty_captions():
    perfect = score(REFERENCES, {image: texts[0].upper() for image, texts in REFERENCES.items()})
    assert perfect["BLEU-4"] == pytest.approx(1.0)
    empty = score(REFERENCES, dict.fromkeys(REFERENCES, ""))
    assert list(empty.values()) == [0.0] * 5
    assert score(REFERENCES, {**CAPTIONS, "a.jpg": " . "})["CIDEr"] < score(REFERENCES, CAPTIONS)["CIDEr"]


def test_empty_references_are_left_out():
    assert score({**REFERENCES, "c.jpg": [*REFERENCES["c.jpg"], "", "?!"]}, CAPTIONS) == score(
        REFERENCES, CAPTIONS
    )


def test_exact_match():
    references = {1: ["A red ball.", "the ball"], 2: ["a cat"], 3: ["two dogs"], 4: ["it isn't"]}
    captions = {1: "the ball", 2: "a dog", 3: "Two dogs!", 4: ""}
    assert exact_match(references, captions) == 0.5


@pytest.mark.parametrize(
    ("references", "captions", "options", "message"),
    [
        (REFERENCES, {}, {}, "no captions"),
        (REFERENCES, {"a.jpg": "a"}, {}, "2 images.*'b.jpg'.*references without caption"),
        ({1: ["a"]}, {1: "a", "2": "b"}, {}, "1 image .*'2'.*captions without references"),
        ({1: []}, {1: "a"}, {}, "1 image .*without a reference caption"),
        ({1: ["", "!"]}, {1: "a"}, {}, "1 image .*without a reference caption"),
        (REFERENCES, CAPTIONS, {"metrics": ["cidre"]}, 'no metric "cidre".*"CIDEr"'),
        (REFERENCES, CAPTIONS, {"metrics": ["SPICE"]}, 'no metric "SPICE"'),
        (REFERENCES, CAPTIONS, {"tokenizer": "moses"}, 'no tokenizer "moses"'),
    ],
)
def test_what_cannot_be_scored_is_named(references, captions, options, message):
    with pytest.raises(InputError, match=message):
        score(references, captions, **options)
