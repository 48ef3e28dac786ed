"""Light tokenisation against Stanford's own tokenizer."""

import csv
import json
import os

import pytest

from tfsparsecap.errors import InputError
from tfsparsecap.metrics import tokenize
from tfsparsecap.metrics.tokenize import light_tokenize, ptb_tokenize

ORDINARY = [
    "A child in a pink dress is climbing up a set of stairs in an entry way .",
    'Two men, one of them in a "red" shirt; play: football!',
    "The man's dog isn't on its owner's lap, they're running and can't stop.",
    "A black-and-white dog cannot jump over the t-shirt",
    "1,000 dogs at 5:30 & 50% of a #7 jersey for $5",
    "un café, une fille naïve",
    "a wooden table topped with a bunch of <unk>",
    "a dog — and a cat … sleep",
    "  two   blanks and a\nline end ",
    "",
    " . , !",
]


def test_light_tokenize_by_hand():
    assert light_tokenize("A dog's ball ; isn't RED.") == "a dog 's ball is n't red"


def test_light_and_ptb_agree_on_ordinary_captions():
    assert [light_tokenize(caption) for caption in ORDINARY] == [
        text.strip() for text in ptb_tokenize(ORDINARY)
    ]


def test_light_and_ptb_agree_on_flickr8k(shared):
    with open(shared / "data" / "flickr8k" / "captions.txt", newline="", encoding="utf-8") as file:
        captions = [row["caption"] for row in csv.DictReader(file)]
    different = [
        light
        for light, ptb in zip(map(light_tokenize, captions), ptb_tokenize(captions), strict=True)
        if light != ptb
    ]
    assert len(different) <= 21


def test_light_and_ptb_agree_on_published_captions(shared):
    fixture = shared / "fixtures" / "updown_smp975" / "published_test_captions.json"
    captions = [entry["caption"] for entry in json.loads(fixture.read_text(encoding="utf-8"))]
    assert [light_tokenize(caption) for caption in captions] == ptb_tokenize(captions)


def test_ptb_leaves_the_path_as_it_was():
    before = os.environ["PATH"]
    ptb_tokenize(["a dog"])
    assert os.environ["PATH"] == before
    assert ptb_tokenize([]) == []


def test_without_java_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(tokenize.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(InputError, match=r"no Java.*tfsparsecap\[java\].*light"):
        ptb_tokenize(["a dog"])
