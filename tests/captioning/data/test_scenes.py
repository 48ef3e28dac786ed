"""Scenes: reproducible images, correct captions, and combinations that do not occur in training."""

import itertools
import math

import numpy as np
import pytest

from tfsparsecap.captioning import data as sources
from tfsparsecap.captioning.data import scenes
from tfsparsecap.captioning.data.images import read_image
from tfsparsecap.captioning.data.scenes import COLOURS, SHAPES, SIZES, Scene, Thing
from tfsparsecap.errors import InputError

COUNTS = {"train": 12, "validation": 3, "test": 5}


def many(count, split="train"):
    random = np.random.default_rng(0)
    return [scenes.random_scene(random, split) for _ in range(count)]


def test_a_folder_of_scenes(tmp_path):
    data = scenes.draw(tmp_path / "a folder é", image_size=48, **COUNTS)
    assert {name: len(data.split(name)) for name in COUNTS} == COUNTS
    assert data.skipped == [] and data.notes == []
    for record in data.records:
        assert len(set(record.captions)) == 5
        assert read_image(record.image, 48).std() > 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a folder é"]


def test_equal_arguments_draw_equal_images_and_captions(tmp_path):
    first = scenes.draw(tmp_path / "a", image_size=32, seed=3, **COUNTS)
    second = scenes.draw(tmp_path / "b", image_size=32, seed=3, **COUNTS)
    other = scenes.draw(tmp_path / "c", image_size=32, seed=4, **COUNTS)
    assert [r.captions for r in first.records] == [r.captions for r in second.records]
    assert [r.image.read_bytes() for r in first.records] == [r.image.read_bytes() for r in second.records]
    assert [r.captions for r in first.records] != [r.captions for r in other.records]


def test_an_existing_folder_is_reused(tmp_path, monkeypatch):
    first = scenes.draw(tmp_path / "a", image_size=32, **COUNTS)
    monkeypatch.setattr(scenes, "paint", None)
    assert scenes.draw(tmp_path / "a", image_size=32, **COUNTS).records == first.records


def test_the_default_folder_is_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = sources.load("scenes", image_size=32, **COUNTS)
    assert first.records[0].image.is_relative_to(tmp_path / "tfsparsecap")
    assert scenes.draw(image_size=32, seed=1, **COUNTS).records[0].image != first.records[0].image


def test_existing_files_are_never_overwritten(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(InputError, match="something else"):
        scenes.draw(tmp_path / "mine", image_size=32, **COUNTS)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "x"
    scenes.draw(tmp_path / "a", image_size=32, **COUNTS)
    with pytest.raises(InputError, match="other settings"):
        scenes.draw(tmp_path / "a", image_size=40, **COUNTS)
    with pytest.raises(InputError, match="is a file"):
        scenes.draw(tmp_path / "mine" / "thesis.txt", image_size=32, **COUNTS)
    with pytest.raises(InputError, match="at least one scene"):
        scenes.draw(tmp_path / "b", train=0, validation=0, test=0)
    (tmp_path / "empty").mkdir()
    assert len(scenes.draw(tmp_path / "empty", image_size=32, **COUNTS).records) == 20


def test_a_link_to_nothing_is_refused_before_scenes_are_drawn(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(InputError, match="loop is a symbolic link to nothing"):
        scenes.draw(tmp_path / "loop", train=1, validation=1, test=1)


@pytest.mark.slow
def test_splits_share_no_combination_of_things():
    def combinations(split):
        return {frozenset(map(str, (s.first, s.second))) for s in many(600, split)}

    train, validation, test = (combinations(split) for split in COUNTS)
    assert not train & test and not train & validation and not validation & test


def test_all_things_and_relations_occur():
    drawn = many(1500)
    things = {thing for scene in drawn for thing in (scene.first, scene.second)} - {None}
    assert {(t.size, t.colour, t.shape) for t in things} == set(itertools.product(SIZES, COLOURS, SHAPES))
    assert {scene.relation for scene in drawn} == {"", "left", "above", "inside"}
    single_share = sum(scene.second is None for scene in drawn) / len(drawn)
    assert 0.1 < single_share < 0.3


def test_captions_describe_the_positions(monkeypatch):
    placed = []
    real = scenes._places

    def recording_places(*arguments):
        result = real(*arguments)
        placed.append((arguments[1], result))
        return result

    monkeypatch.setattr(scenes, "_places", recording_places)
    random = np.random.default_rng(1)
    for scene in many(300):
        scenes.paint(scene, 32, random)
        sizes, places = placed.pop()
        for (x, y), size in zip(places, sizes, strict=True):
            assert size / 2 <= x <= 1 - size / 2 and size / 2 <= y <= 1 - size / 2
        if scene.second is None:
            continue
        (x1, y1), (x2, y2) = places
        if scene.relation == "left":
            assert x2 - x1 > 2 * abs(y2 - y1) and x2 - x1 > sum(sizes) / 2
            assert f"a {scene.second} to the right of a {scene.first}" in scene.captions()
        elif scene.relation == "above":
            assert y2 - y1 > 2 * abs(x2 - x1) and y2 - y1 > sum(sizes) / 2
            assert f"a {scene.first} with a {scene.second} below it" in scene.captions()
        else:
            assert math.hypot(x2 - x1, y2 - y1) < 0.1 * sizes[1]
            assert (scene.first.size, scene.second.size) == ("small", "large")
            assert f"a {scene.second} around a {scene.first}" in scene.captions()


def test_colours_in_the_image_are_those_of_the_caption():
    random = np.random.default_rng(0)
    for colour, (hue, _, _) in COLOURS.items():
        scene = Scene(Thing("large", colour, "circle"))
        image = scenes.paint(scene, 64, random).convert("HSV")
        pixels = np.asarray(image).reshape(-1, 3).astype(float) / 255
        painted = pixels[(pixels[:, 1] > 0.4) & (pixels[:, 2] > 0.5)]
        assert len(painted) > 200
        difference = np.abs((painted[:, 0] - hue + 0.5) % 1 - 0.5)
        assert np.median(difference) < 0.03, colour


def test_an_unknown_kind_of_data_gets_a_suggestion():
    with pytest.raises(InputError, match="'scene': did you mean scenes"):
        sources.load("scene")
