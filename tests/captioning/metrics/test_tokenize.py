"""The light tokenizer compared with the PTB tokenizer, and the latter with pycocoevalcap's."""

import csv

import pytest

from tfsparsecap.captioning.data.tokenizers import WordTokenizer
from tfsparsecap.captioning.metrics.java import ptb_tokenize
from tfsparsecap.captioning.metrics.tokenize import light_tokenize

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


@pytest.mark.parametrize(
    ("caption", "words"),
    [
        ("Zwei Kinder auf der Straße.", "zwei kinder auf der straße"),
        ("Une fille nai\u0308ve, un cafe\u0301", "une fille naïve un café"),
        ("एक लड़का दौड़ता है।", "एक लड\u093cका दौड\u093cता है"),
        ("Das ist O\u2019Neills T\u2011Shirt", "das ist o neills t-shirt"),
    ],
)
def test_light_tokenize_keeps_the_words_of_all_languages(caption, words):
    assert light_tokenize(caption) == words


@pytest.mark.parametrize(
    "caption", ["Eine Straße im Süden", "une fille nai\u0308ve", "एक लड़का किताब पढ़ता है", "ผู้ชายกำลังขี่ม้า"]
)
def test_a_generated_caption_can_equal_its_reference(caption):
    tokenizer = WordTokenizer.from_captions([caption])
    generated = tokenizer.decode(tokenizer.encode([caption])[0])
    assert light_tokenize(generated) == light_tokenize(caption)
    if "\u0e1c" not in caption:  # in Thai, characters are words
        assert len(light_tokenize(caption).split()) == len(caption.split())


def test_ptb_equals_pycocoevalcap(with_java):
    from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

    captions = [
        *ORDINARY,
        "Mr. Smith Jr. (left), 日本 🙂 ½ 1 1/2 ''quoted'' <b>",
        "don't ||| -LRB- http://a.b/c?d",
        "x",
    ]
    inputs = {n: [{"caption": " ".join(text.split())}] for n, text in enumerate(captions)}
    expected = PTBTokenizer().tokenize(inputs)
    assert ptb_tokenize(captions) == [expected[n][0] for n in inputs]


def test_ptb_returns_one_text_per_caption_whatever_characters_it_contains(with_java):
    # Line ends of all kinds, control characters, half of a surrogate pair.
    captions = [
        f"dog{chr(code)}cat {code}" for code in (*range(0x100), 0x2028, 0x2029, 0xD800, 0xFFFF, 0x1F642)
    ]
    tokenized = ptb_tokenize(captions)
    assert [text.split()[-1] for text in tokenized] == [text.split()[-1] for text in captions]
    assert all(text.startswith("dog") for text in tokenized)


def test_light_and_ptb_agree_on_ordinary_captions(with_java):
    assert [light_tokenize(caption) for caption in ORDINARY] == [
        text.strip() for text in ptb_tokenize(ORDINARY)
    ]


@pytest.mark.slow
def test_light_and_ptb_agree_on_flickr8k(shared, with_java):
    with open(shared("data/flickr8k/captions.txt"), newline="", encoding="utf-8") as file:
        captions = [row["caption"] for row in csv.DictReader(file)]
    different = [
        light
        for light, ptb in zip(map(light_tokenize, captions), ptb_tokenize(captions), strict=True)
        if light != ptb
    ]
    assert len(different) <= 21


def test_ptb_of_empty_captions_prints_nothing(with_java, capfd):
    assert ptb_tokenize([]) == []
    assert ptb_tokenize(["", "A dog.", ""]) == ["", "a dog", ""]
    assert capfd.readouterr() == ("", "")
