"""Data sets that are a folder of images and a table of their captions."""

import json
import unicodedata

import pytest
from PIL import Image

from tfsparsecap.captioning.data import caption_table
from tfsparsecap.errors import InputError


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "sub").mkdir()
    for name in ("a.png", "b c é.png", "sub/d.png", "e.png"):
        Image.new("RGB", (4, 4)).save(tmp_path / name)
    return tmp_path


def write(folder, text, name="captions.csv"):
    (folder / name).write_text(text, encoding="utf-8")


def test_csv_with_splits(folder):
    write(
        folder,
        "image,caption,split\n"
        'a.png,"a dog, ""two""",train\n'
        "b c é.png,café 😀,val\n"
        "a.png,again,train\n"
        "sub/d.png,third,TEST\n",
    )
    data = caption_table.load(folder)
    assert [(r.image_id, r.captions, r.split) for r in data.records] == [
        ("a.png", ('a dog, "two"', "again"), "train"),
        ("b c é.png", ("café 😀",), "validation"),
        ("sub/d.png", ("third",), "test"),
    ]
    assert data.records[2].image == folder / "sub" / "d.png"
    assert data.skipped == [] and data.notes == []


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_tables_of_spreadsheets(folder, delimiter):
    rows = [
        ("Image", " Caption", "Split"),
        ("a.png", "a dog, running", "train"),
        ("sub\\d.png", "a cat", "test"),
    ]
    write(folder, "\ufeff" + "".join(delimiter.join(row) + "\r\n" for row in rows))
    data = caption_table.load(folder)
    assert [(r.image, r.captions, r.split) for r in data.records] == [
        (folder / "a.png", ("a dog, running",), "train"),
        (folder / "sub" / "d.png", ("a cat",), "test"),
    ]


def test_a_mistyped_split_column_does_not_split_at_random(folder):
    write(folder, "image,caption,fold\na.png,a dog,train\ne.png,a cat,test\n")
    message = "has no column 'folds' but 'image', 'caption', 'fold': set data.image_column, .*split_column"
    with pytest.raises(InputError, match=message):
        caption_table.load(folder, split_column="folds")
    write(folder, '{"image": "a.png", "caption": "a dog", "fold": "train"}\n', "captions.jsonl")
    with pytest.raises(InputError, match="has no key 'folds' but 'image', 'caption', 'fold': set"):
        caption_table.load(folder, "captions.jsonl", split_column="folds")
    write(folder, '{"image": "a.png", "captions": ["a dog"], "split": "train"}\n', "captions.jsonl")
    with pytest.raises(InputError, match="has no key 'folds' but 'image', 'captions', 'split': set"):
        caption_table.load(folder, "captions.jsonl", split_column="folds")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"file_name": "a.png", "text": "a dog"},
            "has no key 'image' but 'file_name', 'text': set data.image_c",
        ),
        (
            {"image": "a.png", "text": "a dog"},
            "has no key 'caption' but 'image', 'text': set .*data.caption_col",
        ),
    ],
)
@pytest.mark.parametrize("on_bad_record", ["skip", "fail"])
def test_other_keys_of_jsonl_are_named(folder, row, message, on_bad_record):
    write(folder, json.dumps(row), "metadata.jsonl")
    with pytest.raises(InputError, match=message):
        caption_table.load(folder, on_bad_record=on_bad_record)
    names = {"image_column": next(iter(row)), "caption_column": "text"}
    assert caption_table.load(folder, **names).records[0].captions == ("a dog",)


def test_an_image_that_is_written_in_several_ways_is_one_image(folder):
    rows = ["sub\\d.png,first", "sub/d.png,second", "./sub/../sub/d.png,third", f"{folder}/sub/d.png,fourth"]
    write(folder, "\n".join(["image,caption", *rows, "a.png,a dog"]))
    data = caption_table.load(folder)
    assert {r.image_id: r.captions for r in data.records} == {
        "sub\\d.png": ("first", "second", "third", "fourth"),
        "a.png": ("a dog",),
    }


def test_captions_without_words_are_not_learned(folder):
    write(folder, "image,caption\na.png,-\nb c é.png,…\ne.png,a dog\ne.png,?\nsub/d.png,😀\n")
    data = caption_table.load(folder)
    assert {r.image_id: r.captions for r in data.records} == {"e.png": ("a dog",), "sub/d.png": ("😀",)}
    assert [entry.where[-6:] for entry in data.skipped] == ["line 2", "line 3", "line 5"]


def test_column_names_can_be_configured(folder):
    write(folder, "id,file,text,part\n1,a.png,x,train\n", "mine.csv")
    data = caption_table.load(
        folder, "mine.csv", image_column="file", caption_column="text", split_column="part"
    )
    assert data.records[0].captions == ("x",)
    with pytest.raises(InputError, match=r"no column 'image' but 'id', 'file', 'text', 'part'"):
        caption_table.load(folder, "mine.csv")


def test_jsonl_with_one_or_many_captions(folder):
    rows = [
        {"image": "a.png", "caption": "one"},
        {"image": "b c é.png", "captions": ["two", "three", ""]},
        {"image": "e.png", "captions": []},
        {"image": "a.png", "caption": 3},
        {"file": "a.png"},
        ["a.png", "x"],
    ]
    write(folder, "\n".join(map(json.dumps, rows)) + "\n{broken\n\n", "captions.jsonl")
    data = caption_table.load(folder)
    assert {r.image_id: r.captions for r in data.records} == {
        "a.png": ("one",),
        "b c é.png": ("two", "three"),
    }
    assert [entry.where.split("/")[-1] for entry in data.skipped] == [
        "captions.jsonl line 3",
        "captions.jsonl line 4",
        "captions.jsonl line 5",
        "captions.jsonl line 6",
        "captions.jsonl line 7",
    ]
    with pytest.raises(InputError, match=r"line 3: the caption of e\.png has no word"):
        caption_table.load(folder, on_bad_record="fail")
    write(folder, json.dumps(rows, indent=2), "captions.json")
    again = caption_table.load(folder, "captions.json")
    assert again.records == data.records and str(again.skipped[0]).startswith(
        f"{folder}/captions.json item 3"
    )


def test_a_split_belongs_to_all_rows_of_its_image(folder):
    write(folder, "image,caption,split\na.png,x,\na.png,y,train\na.png,z,\n")
    (record,) = caption_table.load(folder).records
    assert record.split == "train" and record.captions == ("x", "y", "z")


def test_bad_rows_are_listed(folder):
    write(
        folder,
        "image,caption,split\n"
        "a.png,x,train\n"
        "gone.png,x,train\n"
        "e.png,x,holiday\n"
        "e.png,a, comma,train\n"
        ",x,train\n"
        "b c é.png,-,train\n"
        "sub/d.png,x,\n",
    )
    data = caption_table.load(folder)
    assert [r.image_id for r in data.records] == ["a.png"]
    assert [str(entry).removeprefix(f"{folder}/captions.csv ") for entry in data.skipped] == [
        "line 3: the image gone.png is missing",
        "line 4: the split 'holiday' is not train, validation or test",
        "line 5: it has more fields than columns: put the caption of e.png in quotes",
        "line 6: it has no image name",
        "line 7: the caption of b c é.png has no word",
        "sub/d.png: it has no split in captions.csv while other images have one",
    ]
    with pytest.raises(InputError, match=r"line 3: the image gone\.png is missing"):
        caption_table.load(folder, on_bad_record="fail")


QUOTES = 'it has a quotation mark (") without its partner: remove it, or write it twice'


@pytest.mark.parametrize(
    "stray",
    [
        'a.png,"a dog,train',  # closed by nothing, or by a mark in a later row
        '"a.png,a dog,train',
        'a.png,"a dog""two"",train',
        'a.png,"a man, a dog,train',
    ],
)
@pytest.mark.parametrize("last", ["e.png,last,test", 'e.png,"last",test', 'e.png,l"ast,test'])
def test_a_quotation_mark_without_partner_costs_one_row(folder, stray, last):
    write(folder, f'image,caption,split\n{stray}\nsub/d.png,"a ""red"" cat",train\n\n{last}\n')
    data = caption_table.load(folder)
    assert [record.image_id for record in data.records] == ["sub/d.png", "e.png"]
    assert data.records[0].captions == ('a "red" cat',)
    assert [str(entry) for entry in data.skipped] == [f"{folder}/captions.csv line 2: {QUOTES}"]
    with pytest.raises(InputError, match=r"line 2: it has a quotation mark"):
        caption_table.load(folder, on_bad_record="fail")


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_accents_in_one_or_two_code_points_name_the_same_file(folder, form):
    write(folder, f"image,caption\n{unicodedata.normalize(form, 'b c é.png')},a dog\n")
    assert caption_table.load(folder).records[0].image.is_file()


def test_images_need_not_exist_for_features(folder):
    write(folder, "image,caption\n7.jpg,a dog\n")
    record = caption_table.load(folder, images="ignore").records[0]
    assert (record.image_id, record.image) == ("7.jpg", folder / "7.jpg")


def labels_of(data):
    return {record.image_id: record.labels for record in data.records}


def test_labels_of_csv(folder):
    rows = [
        "Image,Caption,Split,Labels",
        "a.png,x,train, dog | hot  dog|dog|",
        "a.png,y,train,",
        "a.png,z,train,cat",
        "b c é.png,x,train,|",
        "sub/d.png,x,train,",
        "e.png,x,test,cat",
    ]
    write(folder, "\n".join(rows))
    expected = {"a.png": ("dog", "hot dog", "cat"), "b c é.png": (), "sub/d.png": None, "e.png": ("cat",)}
    data = caption_table.load(folder)
    assert labels_of(data) == expected
    assert data.label_names() == {"dog", "hot dog", "cat"}
    write(folder, "image;caption;labels\na.png;x;dog|cat\n")
    assert labels_of(caption_table.load(folder)) == {"a.png": ("dog", "cat")}
    write(folder, "image,caption\na.png,x\n")
    assert labels_of(caption_table.load(folder)) == {"a.png": None}


def test_labels_of_jsonl(folder):
    rows = [
        {"image": "a.png", "captions": ["x"], "labels": ["dog", "cat\n", "dog"]},
        {"image": "b c é.png", "caption": "x", "labels": []},
        {"image": "sub/d.png", "caption": "x", "labels": None},
        {"image": "e.png", "caption": "x"},
    ]
    write(folder, "\n".join(map(json.dumps, rows)), "captions.jsonl")
    expected = {"a.png": ("dog", "cat"), "b c é.png": (), "sub/d.png": None, "e.png": None}
    assert labels_of(caption_table.load(folder)) == expected


@pytest.mark.parametrize("labels", ["dog", ["dog", 3], {"dog": 1}, 0, [""], [["dog"]], [" - "]])
def test_labels_that_are_no_names_are_refused(folder, labels):
    rows = [{"image": "e.png", "caption": "x"}, {"image": "a.png", "caption": "x", "labels": labels}]
    write(folder, "\n".join(map(json.dumps, rows)), "captions.jsonl")
    with pytest.raises(
        InputError, match=r"line 2: 'labels' of a\.png is not a list of names: write one, such"
    ):
        caption_table.load(folder)


def test_labels_that_no_training_image_has_are_refused(folder):
    rows = ["a.png,x,train,dog|cat", "e.png,x,test,dog|catt|perosn", "sub/d.png,x,val,dog"]
    write(folder, "\n".join(["image,caption,split,labels", *rows]))
    message = r"labels in the test split that no training image has \(catt, perosn\): use the same names"
    with pytest.raises(InputError, match=message):
        caption_table.load(folder)
    # Without labels of training images there is nothing to compare with, and a random split is nobody's slip.
    write(folder, "\n".join(["image,caption,split,labels", rows[0].replace("dog|cat", ""), *rows[1:]]))
    assert labels_of(caption_table.load(folder))["e.png"] == ("dog", "catt", "perosn")
    write(folder, "image,caption,labels\na.png,x,a\nb c é.png,x,b\nsub/d.png,x,c\ne.png,x,d\n")
    assert len(caption_table.load(folder).records) == 4


@pytest.mark.parametrize(
    ("text", "captions"),
    [
        ("image,caption\na.png,a man , a dog\n", [("a man , a dog",)]),
        (
            "image,caption,caption,caption\na.png,first,second,third, with a comma\ne.png,x,,\n",
            [("first", "second", "third, with a comma"), ("x",)],
        ),
        ("sep=;\nimage;caption\na.png;a dog, running\n", [("a dog, running",)]),
        ('SEP=,\nimage, caption\na.png, "a dog, running"\n', [("a dog, running",)]),
        ('image, caption\na.png, "a dog, running"\ne.png, a cat\n', [("a dog, running",), ("a cat",)]),
        ("image;caption;notes, other\na.png;a dog, running;\n", [("a dog, running",)]),
        (
            'image,caption\na.png,"a dog, that\nruns, in the\n\npark"\ne.png,last\n',
            [("a dog, that runs, in the park",), ("last",)],
        ),
        (f"image,caption\na.png,{'word ' * 50_000}\n", [(" ".join(["word"] * 50_000),)]),
    ],
    ids=["commas", "columns", "Excel", "Excel with spaces", "spaces", "another delimiter", "lines", "long"],
)
def test_captions_with_delimiters_quotation_marks_and_lines(folder, text, captions):
    write(folder, text)
    data = caption_table.load(folder)
    assert [record.captions for record in data.records] == captions and data.skipped == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "no table of captions"),
        ("", r"captions\.csv is empty: give a table"),
        ("image|caption\na.png|x\n", r"'image\|caption'"),
        ("image,caption\ngone.png,x\n", r"no row with an image.*gone\.png is missing"),
        (
            "image,caption,split\na.png,x,train\na.png,y,test\n",
            r"line 3: a\.png is in split test here and in train before",
        ),
        ("a.png,a dog\ne.png,a cat\n", r"its first line must contain the names .*, image,caption,split$"),
    ],
)
def test_other_files_are_rejected(folder, text, message):
    if text is not None:
        write(folder, text)
    with pytest.raises(InputError, match=message):
        caption_table.load(folder)
    with pytest.raises(InputError, match=r"no table nowhere\.csv"):
        caption_table.load(folder, "nowhere.csv")
