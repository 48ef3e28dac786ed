"""Objects that captions name, told by hand, and object recall and hallucination, computed by hand."""

import json

import pytest

from tfsparsecap.captioning.metrics.named_objects import SYNONYMS, Labelled, named_objects, object_scores


def test_there_are_80_categories_with_words_of_their_own():
    assert len(SYNONYMS) == 80
    words = [word for name, synonyms in SYNONYMS.items() for word in (name, *synonyms)]
    assert len(words) == len(set(words))


@pytest.mark.parametrize("name", SYNONYMS)
def test_each_category_is_named_by_its_name_and_its_synonyms(name):
    for word in (name, *SYNONYMS[name]):
        if word != "orange":  # most often a colour
            assert named_objects(f"there is {word}") == [name]


@pytest.mark.parametrize(
    ("caption", "objects"),
    [
        ("Two men and a woman ride bikes.", ["person", "person", "bicycle"]),
        ("a man on a motor bike", ["person", "motorcycle"]),
        ("A boy eats a hot-dog next to his puppies", ["person", "hot dog", "dog"]),
        ("a dog with a teddy bear", ["dog", "teddy bear"]),
        ("a polar bear near a brown bear", ["bear", "bear"]),
        ("a roll of toilet paper on a toilet", ["toilet"]),
        ("a train on the train tracks at a train station", ["train"]),
        ("a passenger train and a commuter bus", ["train", "bus"]),
        ("passengers wait for the bus at a bus stop", ["person", "bus"]),
        ("a baby elephant stands by its mother", ["elephant"]),
        ("a baby holds a toothbrush", ["person", "toothbrush"]),
        ("a couple of zebras", ["zebra"]),
        ("a couple sits on a couch", ["person", "couch"]),
        ("a player swings a bat at a baseball", ["person", "baseball bat"]),
        ("knives, forks and wine glasses on a table", ["knife", "fork", "wine glass", "dining table"]),
        ("a computer and a mouse on a desk", ["mouse"]),
        ("an orange cat in an orange shirt", ["cat"]),
        ("apples, oranges and an orange.", ["apple", "orange", "orange"]),
        ("a bowl with slices of carrot cake", ["bowl", "cake"]),
        ("a man talks on a cell phone near a telephone pole", ["person", "cell phone"]),
        ("a skier on skis", ["person", "skis"]),
        ("A MAN'S TIE", ["person", "tie"]),
        ("he holds something", []),
        ("", []),
    ],
)
def test_objects_of_captions(caption, objects):
    assert named_objects(caption) == objects


def test_other_names_are_named_by_themselves_and_their_plural():
    names = ["Lynx", "palm-tree", "city", "man", "coffee table", "dog"]
    caption = "Two lynxes, a man and a woman under palm trees at a coffee table of the cities"
    assert named_objects(caption, names) == ["lynx", "man", "palm tree", "coffee table", "city"]
    assert named_objects("a hot dog for a dog", names) == ["dog"]
    assert named_objects("s", ["!"]) == []


@pytest.mark.parametrize(
    ("name", "plurals"),
    [
        ("potato", "potatoes potatos"),
        ("mango", "mangoes mangos"),
        ("piano", "pianos"),
        ("scarf", "scarves scarfs"),
        ("bookshelf", "bookshelves"),
        ("wolf", "wolves"),
        ("leaf", "leaves"),
        ("roof", "roofs"),
        ("pocket knife", "pocket-knives"),
        ("cliff", "cliffs"),
        ("foot", "feet"),
        ("tooth", "teeth"),
        ("schoolchild", "schoolchildren"),
        ("fireman", "firemen"),
        ("field mouse", "field mice"),
        ("snow goose", "snow geese"),
        ("tree", "trees"),
    ],
)
def test_plurals_of_other_names(name, plurals):
    for plural in plurals.split(" ") if " " not in name else [plurals]:
        assert named_objects(f"two {plural} there", [name]) == [name]


def test_scores_equal_those_by_hand():
    captions = [
        Labelled("a dog and a cat", ["dog"], ["a dog", "a kitten plays"]),  # the cat is in a reference
        Labelled("two men on bikes", ["person", "bicycle"], ["people"]),
        Labelled("a car near a dog and a dog", ["cat"], ["a cat"]),  # three wrong mentions
        Labelled("a bench", [], ["grass"]),  # without labels: no recall
        Labelled("green grass", ["sheep"], []),
        Labelled("a giraffe with a zebra", ["giraffe"], []),  # zebras are not labelled in this data set
    ]
    names = {"dog", "cat", "person", "bicycle", "car", "bench", "sheep", "giraffe"}
    assert object_scores(captions, names) == {
        "object_images": 6,
        "object_recall": 3 / 5,
        "object_hallucination": 3 / 6,
        "object_hallucination_mentions": 5 / 9,
        "CHAIR_s": 2 / 6,
        "CHAIR_i": 4 / 9,
    }


def test_shares_of_nothing_are_absent():
    assert object_scores([], ["dog"]) == {}
    assert object_scores([Labelled("grass", [])], ["dog"]) == {
        "object_images": 1,
        "object_hallucination": 0,
        "CHAIR_s": 0,
    }


def test_people_name_the_labelled_objects_and_hardly_any_other(shared):
    file = shared("data/coco_everyday/captions.jsonl")
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    rows = [row for row in rows if row["split"] == "test" and row["labels"] is not None]
    first = [Labelled(row["captions"][0], row["labels"], row["captions"][1:]) for row in rows]
    scores = object_scores(first, SYNONYMS)
    assert scores["object_recall"] > 0.88 and scores["object_hallucination"] < 0.04
    assert scores["CHAIR_s"] < 0.015
