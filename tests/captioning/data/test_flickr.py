"""Flickr folders in all layouts in which they are distributed."""

import shutil

import pytest
from PIL import Image

from tfsparsecap.captioning.data import flickr
from tfsparsecap.errors import InputError


def make_images(folder, names):
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(names):
        Image.new("RGB", (4, 4), (40 * number, 0, 0)).save(folder / name)


@pytest.fixture
def names():
    return [f"{number}.jpg" for number in range(1, 7)]


@pytest.fixture
def folder(tmp_path, names):
    folder = tmp_path / "flickr 8k é"
    make_images(folder / "Images", names)
    rows = ["image,caption", *(f"{name},a dog {n} ." for name in names for n in range(2))]
    (folder / "captions.txt").write_text("\n".join(rows) + "\n", encoding="utf-8")
    for split, chosen in (("train", names[:4]), ("dev", names[4:5]), ("test", names[5:])):
        (folder / f"Flickr_8k.{split}Images.txt").write_text("\n".join(chosen) + "\n", encoding="utf-8")
    return folder


def test_the_real_flickr8k(shared):
    data = flickr.load(shared("data/flickr8k"))
    assert [len(data.split(name)) for name in ("train", "validation", "test")] == [6000, 1000, 1000]
    assert all(len(record.captions) == 5 for record in data.records)
    assert data.skipped == []
    assert "91 images are in no split file" in data.notes[0]
    captions = {record.image_id: record.captions for record in data.records}
    # A quoted caption with commas.
    assert captions["1012212859_01547e3f17.jpg"][0] == (
        "A dog shakes its head near the shore , a red ball next to it ."
    )


def test_official_splits(folder, names):
    data = flickr.load(folder)
    assert [record.image_id for record in data.split("train")] == names[:4]
    assert [record.image_id for record in data.split("validation")] == names[4:5]
    assert [record.image_id for record in data.split("test")] == names[5:]
    assert data.records[0].image == folder / "Images" / "1.jpg"
    assert data.records[0].captions == ("a dog 0 .", "a dog 1 .")
    assert data.name == "flickr 8k é"


def test_without_split_files_a_random_split_is_noted(folder, names):
    for path in folder.glob("Flickr_8k.*"):
        path.unlink()
    data = flickr.load(folder, seed=1)
    assert [len(data.split(name)) for name in ("train", "validation", "test")] == [4, 1, 1]
    assert "90/5/5" in data.notes[0] and "seed 1" in data.notes[0]
    assert flickr.load(folder, seed=1).records == data.records
    with_others = [f"{number}.png" for number in range(40)]
    make_images(folder / "Images", [*with_others, "._1.jpg"])
    more = flickr.load(folder, seed=1)
    assert more.records == data.records and more.notes == data.notes
    assert {entry.where for entry in more.skipped} == set(with_others)
    assert {entry.why for entry in more.skipped} == {"it has no caption in captions.txt"}


@pytest.mark.parametrize("file", ["Flickr8k.token.txt", "captions.token", "Flickr8k_text/Flickr8k.token.txt"])
def test_token_files(folder, names, file):
    (folder / "captions.txt").unlink()
    (folder / "Images").rename(folder / "Flicker8k_Dataset")
    lines = [f'{name}#{n}\tA dog , or "two" # {n} .' for name in names for n in range(2)]
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_text(
        "\n".join([*lines, "no tab here", "2.jpg.1#0\tan absent one ."]), encoding="utf-8"
    )
    data = flickr.load(folder)
    assert data.records[0].captions == ('A dog , or "two" # 0 .', 'A dog , or "two" # 1 .')
    assert [entry.where.split("/")[-1] for entry in data.skipped] == [
        f"{file.split('/')[-1]} line 13",
        "2.jpg.1",
    ]


def test_flickr30k_results_with_the_broken_row(tmp_path):
    make_images(tmp_path / "flickr30k_images" / "flickr30k_images", ["1.jpg", "2.jpg", "3.jpg"])
    (tmp_path / "flickr30k_images" / "results.csv").write_text(
        "image_name| comment_number| comment\n"
        "1.jpg| 0| Two men , one | tall .\n"
        "1.jpg| 4   A dog runs across the grass .\n"
        '2.jpg| 0| She said "hi" .\n'
        "3.jpg| 0| Third .\n",
        encoding="utf-8",
    )
    data = flickr.load(tmp_path)
    captions = {record.image_id: record.captions for record in data.records}
    assert captions == {
        "1.jpg": ("Two men , one | tall .", "A dog runs across the grass ."),
        "2.jpg": ('She said "hi" .',),
        "3.jpg": ("Third .",),
    }
    assert data.skipped == []


def test_split_files_may_leave_out_the_suffix(folder, names):
    for path in folder.glob("Flickr_8k.*"):
        path.unlink()
    for split, chosen in (("train", names[:4]), ("val", names[4:5]), ("test", names[5:])):
        (folder / f"{split}.txt").write_text("\n".join(name[:-4] for name in chosen), encoding="utf-8")
    assert [record.image_id for record in flickr.load(folder).split("train")] == names[:4]


def test_captions_with_commas_quotes_and_unicode(folder, names):
    rows = [
        "image,caption",
        '1.jpg,"A ""quoted"" word, and a comma"',
        "1.jpg,an unquoted , comma",
        "1.jpg,café 😀 日本",
        f"1.jpg,{'word ' * 200}",
        "1.jpg,",
        '1.jpg,"two',
        'lines"',
        *(f"{name},a dog" for name in names[1:5]),
    ]
    (folder / "captions.txt").write_text("\r\n".join(rows), encoding="utf-8-sig")
    data = flickr.load(folder)
    assert data.records[0].captions == (
        'A "quoted" word, and a comma',
        "an unquoted , comma",
        "café 😀 日本",
        " ".join(["word"] * 200),
        "two lines",
    )
    assert [str(entry).removeprefix(f"{folder}/") for entry in data.skipped] == [
        "captions.txt line 6: the caption of 1.jpg has no word",
        "6.jpg: it has no caption in captions.txt",
    ]
    with pytest.raises(InputError, match="line 6"):
        flickr.load(folder, on_bad_record="fail")


def written(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def without(pattern):
    return lambda folder: [path.unlink() for path in folder.glob(pattern)]


def emptied(folder):
    shutil.rmtree(folder)
    folder.mkdir()


def made_a_file(folder):
    shutil.rmtree(folder)
    folder.touch()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (shutil.rmtree, "no data folder"),
        (emptied, "is empty"),
        (made_a_file, "is a file"),
        (without("Flickr_8k.dev*"), r"not Flickr_8k\.devImages\.txt"),
        (
            written("captions.txt", b"a,b\n1.jpg,x\n"),
            r"has no column 'image' but 'a', 'b': its first line must be",
        ),
        (written("captions.txt", b"image,caption\n1.jpg,caf\xe9\n"), "UTF-8"),
        (written("captions.txt", b"image,caption\nother.jpg,x\n"), "none of the images"),
        (without("captions.txt"), "no captions in"),
        (without("Images/*"), "no images in"),
        (without("Images/[12].jpg"), r"Flickr_8k.trainImages.txt lists 2 images .*\(1.jpg, 2.jpg\)"),
        (written("Flickr_8k.testImages.txt", b"1.jpg\n"), r"1\.jpg is in the train and in the test split"),
    ],
)
def test_other_folders_are_rejected(folder, change, message):
    change(folder)
    with pytest.raises(InputError, match=message):
        flickr.load(folder)
