"""Bottom-up features of image regions: shapes are checked before training, values are read per batch."""

import contextlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from tfsparsecap.captioning.data.records import IMAGE_SUFFIXES, BadRecords, OnBadRecord, with_progress
from tfsparsecap.core.array_files import ENDINGS, ArrayFile, open_array
from tfsparsecap.errors import InputError

#: How far boxes may exceed the image, as a fraction of its side, because detectors round to pixels.
BOX_TOLERANCE = 0.01

# More threads help with slow disks only, because reading headers is mostly Python code.
_THREADS = 4


class RegionFeatures:
    """Features, boxes and pooled features of many images, with separate files for each image.

    The layout is that of published bottom-up features: `FOLDER/cocobu_att/ID.npy` or `ID.npz` float
    [regions, D], `FOLDER/cocobu_fc/ID.npy` float [D] and `FOLDER/cocobu_box_relative/ID.npy` float
    [regions, 4] (x_min, y_min, x_max, y_max as fractions of the image's width and height). An `.npz` file
    contains one array of any name. For an id that is a file name, such as `dog.jpg`, `dog.npy` works, too.

    The constructor reads the headers only and keeps a few bytes per image. `fetch` reads the values of one
    image and keeps nothing.

    Args:
        folder: contains the three folders.
        image_ids: ids of the images; `fetch` takes an index into them.
        feature_size: `D`; None is the width of the first readable file.
        buckets: numbers of regions that batches are padded to, besides `max_regions`.
        max_regions: only the first regions of an image are used.
        on_bad_record: what to do with images whose files are missing or have another format: `"skip"` (they
            are listed in `skipped`) or `"fail"`.
        need_boxes, need_pooled: whether `fetch` returns them; otherwise their files are not read.
        progress: whether to print how many files have been read.

    Attributes:
        image_ids: as given.
        feature_size: `D`.
        buckets: ascending, the last one is `max_regions`.
        regions: int32 [images], number of regions that `fetch` returns, 0 for images that are not usable.
        usable: bool [images].
        skipped: images that are not usable, and why.

    Raises:
        InputError: a folder is missing, no image can be used, or `on_bad_record` is `"fail"` and one cannot.

    Examples:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> (folder / "cocobu_att").mkdir()
        >>> np.save(folder / "cocobu_att" / "7.npy", np.ones([2, 5], np.float32))
        >>> features = RegionFeatures(folder, ["7"], need_boxes=False, need_pooled=False)
        >>> features.fetch(0, regions=3)["mask"].tolist()
        [True, True, False]
        >>> features.bucket([36, 37, 500]).tolist()
        [36, 50, 100]
    """

    def __init__(
        self,
        folder: str | os.PathLike,
        image_ids: Sequence[str],
        *,
        feature_size: int | None = None,
        buckets: Sequence[int] = (36, 50, 75, 100),
        max_regions: int = 100,
        on_bad_record: OnBadRecord = "skip",
        need_boxes: bool,
        need_pooled: bool,
        progress: bool = True,
    ):
        self.image_ids = list(image_ids)
        self.max_regions = max_regions
        self.buckets = (*sorted({bucket for bucket in buckets if bucket < max_regions}), max_regions)
        self.need_boxes, self.need_pooled = need_boxes, need_pooled
        if not self.image_ids:
            raise InputError(f"there are no images for the features in {folder}: use data with images")
        att, box, fc = (Path(folder) / name for name in ("cocobu_att", "cocobu_box_relative", "cocobu_fc"))
        self._att = _Files(att, self.image_ids, "[regions, D]", max_regions)
        self._box = _Files(box, self.image_ids, "[regions, 4]", max_regions) if need_boxes else None
        self._fc = _Files(fc, self.image_ids, "[D]") if need_pooled else None
        self._expected = f"feature_size is {feature_size}"
        self.feature_size = feature_size or self._first_width()
        bad = BadRecords(on_bad_record)
        self.regions = np.zeros(len(self.image_ids), np.int32)
        with ThreadPoolExecutor(_THREADS) as threads:
            checks = threads.map(self._try, range(len(self.image_ids)))
            for index, result in enumerate(with_progress(checks, len(self.image_ids), "indexing", progress)):
                if isinstance(result, int):
                    self.regions[index] = result
                else:
                    bad.add(self.image_ids[index], result)
        self.usable = self.regions > 0
        self.skipped = bad.skipped
        if not self.usable.any():
            raise InputError(
                f"{folder} has usable features for none of the {len(self.image_ids)} images: check that they "
                f"belong to this data set; the first: {self.skipped[0]}"
            )

    def bucket(self, regions: np.ndarray) -> np.ndarray:
        """The smallest sufficient bucket for each number of regions: int [...] -> int64 [...]."""
        held = np.minimum(regions, self.max_regions)
        return np.asarray(self.buckets, np.int64)[np.searchsorted(self.buckets, held)]

    def fetch(self, index: int, regions: int) -> dict[str, np.ndarray]:
        """Reads one image from its files.

        Args:
            index: into `image_ids`.
            regions: `N`, at least `self.regions[index]`; further ones are padding.

        Returns:
            `"features"` float32 [N, D] and `"mask"` bool [N], true for regions; `"boxes"` float32 [N, 4] and
            `"pooled"` float32 [D] if needed. Padding is zero.

        Raises:
            InputError: a file has NaN or infinity, is damaged or was changed since it was indexed, a box is
                outside the image or inverted, or the image is not usable.
        """
        count, size = int(self.regions[index]), self.feature_size
        if count == 0:
            raise InputError(f"the features of {self.image_ids[index]} cannot be used: leave it out")
        assert size is not None  # known, because an image is usable
        image = {"features": np.zeros([regions, size], np.float32), "mask": np.arange(regions) < count}
        self._att.read(index, image["features"][:count])
        if self._box:
            image["boxes"] = np.zeros([regions, 4], np.float32)
            self._box.read(index, image["boxes"][:count])
            check_boxes(image["boxes"][:count], self._box.path(index))
        if self._fc:
            image["pooled"] = np.zeros([size], np.float32)
            self._fc.read(index, image["pooled"])
        return image

    def one(self, index: int) -> dict[str, np.ndarray]:
        """The arrays of one image without padding and without `mask`; errors as for `fetch`."""
        image = self.fetch(index, int(self.regions[index]))
        return {name: values for name, values in image.items() if name != "mask"}

    def _first_width(self) -> int | None:
        for index in range(len(self.image_ids)):
            with contextlib.suppress(InputError):
                width = self._att.shape(index)[1]
                self._expected = f"{self._att.path(index)} has {width}"
                return width
        return None

    def _try(self, index: int) -> int | str:
        """The number of regions of an image, or the reason why it cannot be used."""
        try:
            return self._check(index)
        except InputError as error:
            return str(error)

    def _check(self, index: int) -> int:
        rows, width = self._att.shape(index)
        if width != self.feature_size:
            raise InputError(
                f"{self._att.path(index)} has features of {width} numbers but {self._expected}: "
                "use features of one detector, or set model.feature_size"
            )
        if self._box:
            boxes = self._box.shape(index)
            if boxes[1] != 4:
                raise InputError(
                    f"{self._box.path(index)} has rows of {boxes[1]} numbers: a box has 4, x_min, y_min, "
                    "x_max, y_max"
                )
            if boxes[0] != rows:
                raise InputError(
                    f"{self._box.path(index)} has {boxes[0]} boxes but {self._att.path(index)} {rows} "
                    "regions: use both of one run of the detector"
                )
        if self._fc and (width := self._fc.shape(index)[0]) != self.feature_size:
            raise InputError(
                f"{self._fc.path(index)} has {width} numbers but {self._expected}: "
                "use pooled features of the same detector"
            )
        return min(rows, self.max_regions)


class _Files:
    """The files of one folder, an array for each image.

    Args:
        folder: `FOLDER/cocobu_att` or the like.
        image_ids: ids of the images.
        form: shape of the arrays, for messages; its commas determine the number of axes.
        most: number of rows that are used; None uses all.
    """

    def __init__(self, folder: Path, image_ids: list[str], form: str, most: int | None = None):
        self._folder, self._ids, self._form, self._most = os.fspath(folder), image_ids, form, most
        self._axes = form.count(",") + 1
        if not folder.is_dir():
            raise InputError(
                f"there is no folder {folder} with files ID.npy or ID.npz, float {form}: "
                f"set data.features to the folder that contains {folder.name}"
            )
        files = _listing(folder)
        # The index of the file's name among the possible ones, from 1; 0 if there is none. Paths would
        # take more memory.
        self._variant = np.zeros(len(image_ids), np.uint8)
        for index, image_id in enumerate(image_ids):
            names = _names(image_id)
            self._variant[index] = next((n for n, name in enumerate(names, 1) if name in files), 0)

    def path(self, index: int) -> str:
        """The file of an image. Raises InputError if there is none."""
        names, variant = _names(self._ids[index]), self._variant[index]
        if not variant:
            raise InputError(
                f"there is no {os.path.join(self._folder, names[-2])} (or .npz): complete the features, or "
                "leave the image out"
            )
        return os.path.join(self._folder, names[variant - 1])

    def shape(self, index: int) -> tuple[int, ...]:
        """The shape of an image's array. Raises InputError if it cannot be used."""
        path = self.path(index)
        with open_array(path) as array:
            self._check(array, path)
            return array.shape

    def read(self, index: int, out: np.ndarray) -> None:
        """Reads the first rows of an image's array into `out`, float32 [rows, ...].

        Raises:
            InputError: the file was changed or is damaged, or a number is not finite in float32.
        """
        path = self.path(index)
        with open_array(path) as array:
            self._check(array, path)
            rows, *width = array.shape
            if (min(rows, self._most or rows), *width) != out.shape:
                raise InputError(f"{path} was changed since it was indexed: run this again")
            with np.errstate(over="ignore"):
                out[...] = array.first(len(out))
        check_finite(out, path)

    def _check(self, array: ArrayFile, path: str) -> None:
        if not np.issubdtype(array.dtype, np.floating):
            raise InputError(f"{path} has the type {array.dtype}, not floating-point: save it as float32")
        if len(array.shape) != self._axes:
            raise InputError(f"{path} has the shape {list(array.shape)}, expected {self._form}: correct it")
        if 0 in array.shape:
            raise InputError(f"{path} has the shape {list(array.shape)}, which is empty: leave the image out")


def _listing(folder: Path) -> set[str]:
    """Paths of the array files in a folder and its subfolders, relative to it."""

    def fail(error: OSError) -> None:
        raise InputError(f"cannot list {error.filename}: {error.strerror}; check the folder") from error

    files: set[str] = set()
    for place, _, names in os.walk(folder, onerror=fail):
        inner = os.path.relpath(place, folder)
        before = "" if inner == "." else f"{inner}/"
        files.update(before + name for name in names if name.endswith(ENDINGS))
    return files


def _names(image_id: str) -> list[str]:
    """Possible file names of an image's array, in order of preference."""
    stem, suffix = os.path.splitext(image_id)
    stems = (image_id, stem) if suffix.lower() in IMAGE_SUFFIXES else (image_id,)
    return [name + ending for name in stems for ending in ENDINGS]


def check_finite(values: np.ndarray, where: str) -> None:
    """Raises InputError if a number of an array, float32 [rows, ...], is NaN or infinite.

    Examples:
        >>> check_finite(np.zeros((2, 5), np.float32), "a.npy")
    """
    if not np.isfinite(values).all():
        row = int(np.argwhere(~np.isfinite(values))[0, 0])
        raise InputError(
            f"{where} has a number in row {row} that is not finite in float32: extract its features again, or"
            " leave the image out"
        )


def check_boxes(boxes: np.ndarray, path: str) -> None:
    """Raises InputError if one of the boxes, float [regions, 4], is outside the image or inverted.

    Examples:
        >>> check_boxes(np.array([[0.0, 0.0, 1.0, 0.5]]), "a.npy")
    """
    outside = (boxes < -BOX_TOLERANCE) | (boxes > 1 + BOX_TOLERANCE)
    wrong = outside.any(axis=1) | (boxes[:, 2:] < boxes[:, :2]).any(axis=1)
    if wrong.any():
        row = int(wrong.argmax())
        numbers = ", ".join(f"{number:.5g}" for number in boxes[row])
        raise InputError(
            f"{path} row {row} is [{numbers}], not a box x_min, y_min, x_max, y_max in fractions "
            "of the image from 0 to 1: divide pixels by its width and height, or leave the image out"
        )
