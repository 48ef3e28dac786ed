"""Published bottom-up features, as TSV files or zip archives, in the layout that `RegionFeatures` reads."""

import base64
import binascii
import io
import math
import os
import sys
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple

import numpy as np
from tqdm import tqdm

from tfsparsecap.captioning.data.records import listed
from tfsparsecap.captioning.data.region_features import check_boxes
from tfsparsecap.core.array_files import ENDINGS, open_array
from tfsparsecap.core.files import DAMAGE, check_input_file, temporary_folder, write_errors
from tfsparsecap.errors import InputError

#: The columns of a TSV, in this order and without a header.
COLUMNS = ("image_id", "image_w", "image_h", "num_boxes", "boxes", "features")
#: The array of an image in each folder.
FORMS = {"cocobu_att": "[regions, D]", "cocobu_fc": "[D]", "cocobu_box_relative": "[regions, 4]"}
_ATT, _FC, _BOX = FORMS
# Bytes of a line or of an array; 100 regions of 2048 numbers have 1.1 MB.
_LONGEST = 64 << 20
_LONGEST_ID = 200


class _Array(NamedTuple):
    """An array of an image, of the folder `kind`, and where it was found."""

    where: str
    image_id: str
    kind: str
    values: np.ndarray


def convert_features(
    files: Sequence[str | os.PathLike], output: str | os.PathLike, image_ids: Iterable[str] = ()
) -> dict[str, Any]:
    """Writes published features of image regions to a new folder, with separate files for each image.

    A TSV has a line for each image, with `COLUMNS` of Anderson et al.: boxes float32 [num_boxes, 4] in pixels
    and features float32 [num_boxes, D], both in base64. A zip archive contains such files, or an `.npy` or
    `.npz` file for each image, named after it: features, boxes as fractions of the image if their folder is
    named `..._box_relative`, and pooled features in `..._fc`. Other files in it are left out.

    Args:
        files: of one detector, for example a TSV for each split.
        output: the new folder: `cocobu_att/ID.npy` float32 [regions, D]; `cocobu_box_relative/ID.npy` float32
            [regions, 4] and `cocobu_fc/ID.npy` float32 [D] if the files have them.
        image_ids: images that must be among them.

    Returns:
        `images`, `feature_size`, `fewest_regions`, `most_regions`, `folders` and `left_out`, the number of
        files in archives that were left out.

    Raises:
        InputError: a file is missing, damaged, or ends in the middle; an array has another shape, or values
            that are not finite or no boxes; an image is missing, or there twice; the folder exists. Nothing
            is written then.

    Examples:
        >>> numbers = np.ones((2, 4), np.float32)
        >>> text = base64.b64encode(numbers).decode()
        >>> _ = Path("two.tsv").write_text(f"7\\t1\\t1\\t2\\t{text}\\t{text}\\n")
        >>> convert_features(["two.tsv"], "features")["feature_size"]
        4
        >>> np.load("features/cocobu_att/7.npy").shape
        (2, 4)
    """
    output = Path(output)
    if output.exists():
        raise InputError(f"{output} exists: give --output a new folder")
    if not output.parent.is_dir():
        raise InputError(f"cannot write {output}: the folder {output.parent} does not exist; create it first")
    with write_errors(output), temporary_folder(output) as folder:
        writer = _Writer(folder)
        for file in files:
            for array in _arrays(Path(file)):
                if array is None:
                    writer.left_out += 1
                else:
                    writer.add(array)
        result = writer.finish(files, image_ids)
        folder.chmod(0o755)
        folder.rename(output)
    return result


class _Writer:
    """Checks arrays and writes them into a folder; `rows` is the number of rows by kind and image."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._rows: dict[str, dict[str, int]] = {}
        self._size: int | None = None
        self._first = ""
        self.left_out = 0

    def add(self, array: _Array) -> None:
        where, image_id, kind, values = array
        if not image_id.isprintable() or image_id.strip(".") == "" or "/" in image_id:
            raise InputError(f"{where} names an image {image_id!r:.50}, which is no file name: correct it")
        if len(image_id) > _LONGEST_ID:
            raise InputError(f"{where} names an image with {len(image_id)} characters: correct it")
        if image_id in self._rows.setdefault(kind, {}):
            raise InputError(f"{where} is the second one of the image {image_id}: give each file once")
        self._check(array)
        (self._folder / kind).mkdir(exist_ok=True)
        # Not `np.save` to the file: its error would not say that the disk is full.
        content = io.BytesIO()
        np.save(content, values)
        (self._folder / kind / f"{image_id}.npy").write_bytes(content.getvalue())
        self._rows[kind][image_id] = len(values)

    def _check(self, array: _Array) -> None:
        where, _, kind, values = array
        form = FORMS[kind]
        if values.ndim != form.count(",") + 1 or 0 in values.shape:
            raise InputError(f"{where} has the shape {list(values.shape)}, expected {form}: use other files")
        if not np.isfinite(values).all():
            raise InputError(f"{where} has numbers that are not finite in float32: download it again")
        width = values.shape[-1]
        if kind == _BOX:
            if width != 4:
                raise InputError(f"{where} has rows of {width} numbers: a box has 4")
            check_boxes(values, where)
            return
        if self._size is None:
            self._size, self._first = width, where
        if width != self._size:
            raise InputError(
                f"{where} has features of {width} numbers, but {self._first} of {self._size}: use files of"
                " one detector, and download those that are incomplete again"
            )

    def finish(self, files: Sequence[str | os.PathLike], image_ids: Iterable[str]) -> dict[str, Any]:
        names = ", ".join(map(str, files))
        regions = self._rows.get(_ATT)
        if not regions:
            raise InputError(
                f"{names:.200} has features of no image: give the TSV or zip of bottom-up features"
            )
        for kind, rows in self._rows.items():
            if absent := sorted(regions.keys() ^ rows.keys()):
                raise InputError(
                    f"{names:.200} has either {_ATT} or {kind} but not both of {len(absent)} images:"
                    f" {listed(absent)}; give all files"
                )
            wrong = [image for image in regions if kind == _BOX and rows[image] != regions[image]]
            if wrong:
                raise InputError(
                    f"{names:.200} has {rows[wrong[0]]} boxes of the image {wrong[0]} but features of"
                    f" {regions[wrong[0]]} regions: use both of one run of the detector"
                )
        # The ids of Flickr's images are file names.
        absent = [name for name in image_ids if not {name, os.path.splitext(name)[0]} & regions.keys()]
        if absent:
            raise InputError(
                f"{names:.200} lacks features of {len(absent)} images of the data: {listed(absent)}; give all"
                " files, such as those of each split, or leave out --data"
            )
        return {
            "images": len(regions),
            "feature_size": self._size,
            "fewest_regions": min(regions.values()),
            "most_regions": max(regions.values()),
            "folders": list(self._rows),
            "left_out": self.left_out,
        }


def _arrays(path: Path) -> Iterator[_Array | None]:
    """The arrays in a TSV file or an archive; None for a file in an archive that is left out."""
    try:
        check_input_file(path, sys.maxsize)
        if path.suffix.lower() != ".zip":
            with path.open("rb") as stream, _bar(path, path.stat().st_size) as bar:
                yield from _rows(stream, str(path), bar)
            return
        with zipfile.ZipFile(path) as archive:
            if min((entry.header_offset for entry in archive.infolist()), default=0):
                # Of a part of an archive of .npz files, zipfile reads the last complete one.
                raise InputError(f"{path} is damaged (it does not begin with a file): download it again")
            members = [member for member in archive.infolist() if not member.is_dir()]
            with _bar(path, sum(member.file_size for member in members)) as bar:
                for member in members:
                    with archive.open(member) as stream:
                        yield from _member(stream, member, path, bar)
    except InputError:
        raise
    except FileNotFoundError as error:
        raise InputError(f"there is no {path}: check the path") from error
    except DAMAGE as error:
        about = str(error) or type(error).__name__
        raise InputError(f"{path} is damaged ({about:.200}): download or create it again") from error


def _bar(path: Path, size: int) -> tqdm:
    """A bar of bytes that appears after three seconds."""
    return tqdm(desc=path.name, total=size, unit="B", unit_scale=True, delay=3, leave=False)


def _member(stream: IO[bytes], member: zipfile.ZipInfo, path: Path, bar: tqdm) -> Iterator[_Array | None]:
    """The arrays of a file in an archive."""
    name = PurePosixPath(member.filename)
    where = f"{path} {name}"
    hidden = name.name.startswith(".") or "__MACOSX" in name.parts
    if ".tsv" in name.suffixes and not hidden:
        yield from _rows(stream, where, bar)
        return
    bar.update(member.file_size)
    folder = name.parent.name
    # Folders of boxes in pixels, which are of no use without the images' sizes.
    if name.suffix not in ENDINGS or hidden or folder.endswith("_box"):
        yield None
        return
    if member.file_size > _LONGEST:
        raise InputError(f"{where} has {member.file_size} bytes: bottom-up features of an image have fewer")
    kind = _BOX if folder.endswith("_box_relative") else _FC if folder.endswith("_fc") else _ATT
    with open_array(where, stream.read()) as array:
        if not np.issubdtype(array.dtype, np.floating):
            raise InputError(f"{where} has the type {array.dtype}, not floating-point: use other files")
        if not array.shape or math.prod(array.shape) * array.dtype.itemsize > _LONGEST:
            raise InputError(
                f"{where} has the shape {list(array.shape)}, expected {FORMS[kind]}: use other files"
            )
        yield _Array(where, name.stem, kind, _float32(array.first(array.shape[0])))


def _rows(stream: IO[bytes], name: str, bar: tqdm) -> Iterator[_Array]:
    """Features and boxes of each line of a TSV."""
    number = 0
    while line := stream.readline(_LONGEST):
        number += 1
        bar.update(len(line))
        where = f"{name} line {number}"
        if not line.endswith(b"\n"):
            what = "ends in the middle" if len(line) < _LONGEST else "is longer than that of any image"
            raise InputError(f"{where} {what}: download or extract the file again")
        fields = line.rstrip(b"\r\n").split(b"\t")
        if len(fields) != len(COLUMNS):
            raise InputError(
                f"{where} has {len(fields)} fields instead of {', '.join(COLUMNS)}: give a TSV of bottom-up"
                " features"
            )
        width, height, count = (
            _number(field, column, where) for field, column in zip(fields[1:4], COLUMNS[1:4], strict=True)
        )
        boxes, features = (
            _decoded(field, column, count, where)
            for field, column in zip(fields[4:], COLUMNS[4:], strict=True)
        )
        if boxes.shape[1] != 4:
            raise InputError(f"{where} has boxes of {boxes.shape[1]} numbers instead of 4: use other files")
        image_id = fields[0].decode("utf-8", "replace")
        yield _Array(where, image_id, _ATT, features)
        yield _Array(where, image_id, _BOX, _float32(boxes / np.array([width, height] * 2)))


def _number(field: bytes, column: str, where: str) -> int:
    if not field.isdigit() or not 0 < len(field) < 7 or int(field) == 0:
        text = field.decode("utf-8", "replace")
        raise InputError(
            f"{where} has {column} {text!r:.50}, not a whole number from 1 to 999999: correct it"
        )
    return int(field)


def _decoded(field: bytes, column: str, count: int, where: str) -> np.ndarray:
    """Base64 of float32 -> [count, numbers]."""
    try:
        content = base64.b64decode(field, validate=True)
    except binascii.Error as error:
        raise InputError(f"{where} has {column} that are not base64 ({error}): download it again") from error
    if not content or len(content) % (4 * count):
        raise InputError(
            f"{where} has {column} of {len(content)} bytes, which are not as many float32 numbers for each of"
            f" {count} regions: download it again"
        )
    return np.frombuffer(content, "<f4").reshape(count, -1)


def _float32(values: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return values.astype(np.float32)
