"""Images with their captions: splits, bad records, and images that are in two splits."""

from pathlib import Path

import pytest

from tfsparsecap.captioning.data import load
from tfsparsecap.captioning.data.records import (
    SPLITS,
    BadRecords,
    CaptionData,
    Record,
    clean_caption,
    copies_across_splits,
    listed,
    seeded_splits,
)
from tfsparsecap.errors import InputError


def test_splits_of_a_data_set():
    records = [
        Record(f"{n}.jpg", Path(f"{n}.jpg"), ("a", "b"), s) for n, s in enumerate(["train", "train", "test"])
    ]
    data = CaptionData("name", records)
    assert [record.image_id for record in data.split("train")] == ["0.jpg", "1.jpg"]
    assert data.split("validation") == []
    assert data.summary() == (
        "name: train 2 images, 4 captions; validation 0 images, 0 captions; test 1 images, 2 captions"
    )
    with pytest.raises(InputError, match="'dev'"):
        data.split("dev")


def test_white_space_and_broken_unicode_of_captions_are_cleaned():
    assert clean_caption(" a\r\n dog\t,\u3000'x' \0 ") == "a dog , 'x'"
    assert clean_caption("half \ud83d pair").encode("utf-8") == b"half ? pair"
    assert clean_caption("\n") == ""


def test_reasons_quote_files_and_are_still_one_line_that_can_be_written():
    bad = BadRecords()
    bad.add("captions.jsonl line 1", f"the split '\ud800\n{'x' * 1000}' is not train, validation or test")
    text = str(bad.skipped[0])
    assert text.startswith("captions.jsonl line 1: the split '? xxx") and len(text.encode()) < 700


@pytest.mark.parametrize("count", [1, 2, 3, 7, 11])
@pytest.mark.parametrize("fractions", [(0, 0.5, 0.5), (0.1, 0.45, 0.45), (0.9, 0.05, 0.05)])
def test_seeded_splits_contain_each_image_once(count, fractions):
    names = [str(number) for number in range(count)]
    splits, _ = seeded_splits(names, 0, "captions.csv", fractions=fractions)
    assert sorted(splits) == sorted(names)


def test_seeded_splits_depend_on_names_and_seed_only():
    names = [f"{n}.jpg" for n in range(200)]
    splits, note = seeded_splits(names, 3, "captions.csv")
    assert note == "captions.csv has no splits: 200 images were split 90/5/5 at random with seed 3"
    assert splits == seeded_splits(reversed(names), 3, "captions.csv")[0]
    assert splits != seeded_splits(names, 4, "captions.csv")[0]
    counts = [list(splits.values()).count(name) for name in ("train", "validation", "test")]
    assert counts == [180, 10, 10]


def test_seeded_splits_of_few_images():
    def of(names, *fractions):
        return sorted(seeded_splits(names, 0, "", *fractions)[0].values())

    assert of("abc") == ["test", "train", "validation"] and of("a") == ["train"]
    assert of("abcd", (1, 0, 0)) == ["train"] * 4


def test_copies_are_in_one_seeded_split(tmp_path):
    names = [f"{n}.jpg" for n in range(200)]
    before, _ = seeded_splits(names, 3, "x")
    files = {name: tmp_path / name for name in names}
    for number, file in enumerate(files.values()):
        file.write_bytes(b"%d" % (number if number > 50 else number // 5))
    splits, note = seeded_splits(reversed(names), 3, "x", files=files)
    records = [Record(name, file, (), splits[name]) for name, file in files.items()]
    assert copies_across_splits(records) == []
    moved = [name for name in names if splits[name] != before[name]]
    assert moved and set(moved) < set(names[:50]) and set(splits.values()) == {*SPLITS}
    assert note.endswith(f"; {len(moved)} copies were put into the splits of their originals")


@pytest.mark.parametrize("count", [100, 1000])
def test_another_image_hardly_changes_seeded_splits(count):
    names = [f"{n}.jpg" for n in range(count)] + ["not UTF-8: \udcff.jpg"]
    before, after = (seeded_splits(some, 0, "")[0] for some in (names[:-1], names))
    assert sum(before[name] != after[name] for name in before) <= 2


def test_equal_data_sets_have_equal_digests(tmp_path):
    def data(caption="a dog", split="train", content=b"12", folder="a", labels=None):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "x.jpg").write_bytes(content)
        record = Record("x.jpg", tmp_path / folder / "x.jpg", (caption,), split, labels)
        return CaptionData(folder, [record]).digest()

    same = data()
    assert data(folder="b") == same
    assert same not in {data(caption="a cat"), data(split="test"), data(content=b"123")}
    # Labels are learnt, too; that none of the objects is there differs from not knowing it.
    assert len({same, data(labels=()), data(labels=("dog",))}) == 3
    # `data.json` of earlier versions has it.
    assert same == "9ccec26131002c6d6f7a2ff2960960df07b397cf20a15a570d90dd971e18ef71"


def test_files_of_images_that_are_not_read_may_change(tmp_path):
    record = Record("x.jpg", tmp_path / "x.jpg", ("a dog",), "train")
    features, photos = (CaptionData("x", [record], reads_images=reads) for reads in (False, True))
    before = features.digest()
    assert photos.digest() == before
    (tmp_path / "x.jpg").write_bytes(b"12")
    assert features.digest() == before != photos.digest()
    assert photos.digests() == (photos.digest(),)
    assert features.digests() == (before, photos.digest()), "an earlier version counted all files"


@pytest.mark.parametrize("fractions", [(0.5, 0.5), (0.9, 0.2, 0.1), (1.2, -0.1, -0.1)])
def test_invalid_fractions_are_rejected(fractions):
    with pytest.raises(InputError, match="add up to 1"):
        seeded_splits(["a"], 0, "", fractions)


def test_bad_records_are_collected_or_raise():
    bad = BadRecords("skip")
    bad.add("a.jpg", "it is broken")
    assert [str(entry) for entry in bad.skipped] == ["a.jpg: it is broken"]
    with pytest.raises(InputError, match=r"a\.jpg: it is broken"):
        BadRecords("fail").add("a.jpg", "it is broken")


def test_long_lists_are_shortened():
    assert listed("abc") == "a, b, c"
    assert listed("abcdef") == "a, b, c and 3 more"


def test_unprintable_and_long_names_are_cleaned_in_messages():
    assert listed(["\x1b[31mred\n", "", "\ud83d", "caf\u00e9"], limit=4) == '?[31mred?, "", ?, caf\u00e9'
    assert listed(["x" * 100_000]) == "x" * 200 + "\u2026"


def records(folder, **files):
    """Records of files named SPLIT_…, with their content."""
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return [Record(name, folder / name, ("a dog",), name.split("_")[0]) for name in files]


def names(pairs):
    return [(first.image_id, second.image_id) for first, second in pairs]


def test_equal_files_in_two_splits_are_found(tmp_path):
    all_records = records(
        tmp_path,
        train_a=b"1" * 9000,
        train_b=b"2" * 9000,
        train_c=b"2" * 9000,  # within a split
        validation_d=b"3" + b"1" * 8999,  # equal size and end
        test_e=b"1" * 9000,
        test_f=b"1" * 8999,
        test_g=b"7",
        validation_h=b"7",
        train_i=b"7",
        test_empty=b"",
        train_empty=b"",
    )
    assert names(copies_across_splits(all_records)) == [("train_a", "test_e"), ("test_g", "validation_h")]


def test_files_that_cannot_be_read_are_left_out(tmp_path):
    (tmp_path / "folder").mkdir()
    paths = (Path("nowhere"), Path("a\0b"), tmp_path / "folder")
    unreadable_records = [
        Record(f"{path}{split}", path, ("x",), split) for path in paths for split in ("train", "test")
    ]
    assert copies_across_splits(unreadable_records) == []


def test_a_photograph_in_two_splits_is_refused(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"photograph")
    (tmp_path / "b.jpg").write_bytes(b"photograph")
    (tmp_path / "captions.csv").write_text("image,caption,split\na.jpg,a dog,train\nb.jpg,a dog,test\n")
    message = (
        r"has 1 photograph in two splits, a\.jpg \(train\) is b\.jpg \(test\): put both into one split, or"
        r" remove one of them$"
    )
    with pytest.raises(InputError, match=message):
        load("table", tmp_path)
    (tmp_path / "captions.csv").write_text("image,caption,split\na.jpg,a dog,train\nb.jpg,a dog,train\n")
    assert len(load("table", tmp_path).records) == 2


def test_copies_in_ms_cocos_splits_are_a_note(tmp_path):
    (tmp_path / "annotations").mkdir()
    for number, split in enumerate(("train", "val")):
        (tmp_path / f"{number}.jpg").write_bytes(b"photograph")
        (tmp_path / "annotations" / f"captions_{split}2014.json").write_text(
            f'{{"images": [{{"id": {number}, "file_name": "{number}.jpg"}}],'
            f' "annotations": [{{"image_id": {number}, "caption": "a dog"}}]}}'
        )
    data = load("coco", tmp_path)
    assert len(data.records) == 2
    assert data.notes[-1].endswith("has 1 photograph in two splits, 0 (train) is 1 (validation)")


@pytest.mark.parametrize("name", ["flickr8k", "coco_everyday"])
def test_published_splits_have_no_copies(shared, name):
    data = load("flickr" if name == "flickr8k" else "table", shared(f"data/{name}"))
    assert data.split("test")
