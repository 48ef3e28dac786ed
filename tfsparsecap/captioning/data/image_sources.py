"""Sources of image inputs for batches: image files, a feature cache, or files of region features."""

import os
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np
import tensorflow as tf

from tfsparsecap.captioning.data.feature_cache import FeatureCache
from tfsparsecap.captioning.data.images import read_image
from tfsparsecap.captioning.data.records import BadRecords, OnBadRecord, Record, Skipped, with_progress
from tfsparsecap.captioning.data.region_features import RegionFeatures
from tfsparsecap.errors import InputError

#: Decoded images are kept in memory up to this total size in bytes; above it, files are read in every epoch.
MEMORY_LIMIT = 1 << 30
# Number of files of region features whose values are checked before training.
_PROBED = 8


class ImageSource(Protocol):
    """The interface of sources of pixels or features.

    Attributes:
        specs: name of a model's input -> dtype and shape of one image's array (None where it varies).
        groups: int [records]; the largest one in a batch determines its cost, so that images of the same
            group are batched together.
        usable: bool [records], whether a record can be fetched. It may become False when it is fetched.
        skipped: records that cannot be fetched.
        views: number of views of each image, see `augmentation.read_view`.
    """

    specs: dict[str, tf.TensorSpec]
    groups: np.ndarray
    skipped: list[Skipped]
    views: int

    @property
    def usable(self) -> np.ndarray: ...

    def fetch(self, indices: np.ndarray, views: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """Returns the inputs of records, for each of `specs` an array with leading axis B.

        Args:
            indices: indices of the records, int64 [B].
            views: number of each image's view, int64 [B]; None is 0.
        """
        ...


class ImageFileSource:
    """Pixels of image files, kept in memory if they fit.

    The constructor decodes every image, so that broken ones are known before training.

    Args:
        records: the records.
        image_size: `S`, side of the images in pixels.
        on_bad_record: see `BadRecords`.
        progress: whether to print how many images have been read.
    """

    def __init__(
        self,
        records: Sequence[Record],
        image_size: int,
        on_bad_record: OnBadRecord = "skip",
        progress: bool = True,
    ):
        self.views = 1
        shape = (image_size, image_size, 3)
        self.specs = {"image": tf.TensorSpec(shape, tf.uint8)}
        self._paths, self._size = [record.image for record in records], image_size
        self.usable = np.zeros(len(records), bool)
        self.groups = np.zeros(len(records), np.int32)
        bad = BadRecords(on_bad_record)
        fits = len(records) * int(np.prod(shape)) <= MEMORY_LIMIT
        self._images = np.zeros((len(records), *shape), np.uint8) if fits else None
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            errors = with_progress(
                threads.map(self._try, range(len(records))), len(records), "reading", progress
            )
            for index, (record, error) in enumerate(zip(records, errors, strict=True)):
                self.usable[index] = error is None
                if error is not None:
                    bad.add(record.image_id, error)
        self.skipped = bad.skipped

    def _try(self, index: int) -> str | None:
        try:
            image = read_image(self._paths[index], self._size)
        except InputError as error:
            return str(error)
        if self._images is not None:
            self._images[index] = image
        return None

    def fetch(self, indices: np.ndarray, views: np.ndarray | None = None) -> dict[str, np.ndarray]:
        if self._images is not None:
            return {"image": self._images[indices]}
        return {"image": np.stack([read_image(self._paths[index], self._size) for index in indices])}


class FeatureCacheSource:
    """Features of a feature cache; records whose image could not be read are not usable.

    Args:
        records: the records.
        caches: features of the images, and of further views of them.
        name: name of the input that they are.
    """

    def __init__(self, records: Sequence[Record], *caches: FeatureCache, name: str = "features"):
        cache, self._name = caches[0], name
        self.specs = {name: tf.TensorSpec(cache.features.shape[1:], cache.features.dtype)}
        unreadable = {entry.where: entry for entry in cache.skipped}
        ids = [record.image_id for record in records]
        self.usable = np.array([name not in unreadable for name in ids], bool)
        self.groups = np.zeros(len(records), np.int32)
        self.skipped = [unreadable[name] for name in ids if name in unreadable]
        self.views, self._features = len(caches), [cache.features for cache in caches]
        names = [name for name in ids if name not in unreadable]
        self._rows = np.zeros((len(caches), len(records)), np.int64)
        self._rows[:, self.usable] = [cache.rows(names) for cache in caches]

    def fetch(self, indices: np.ndarray, views: np.ndarray | None = None) -> dict[str, np.ndarray]:
        if views is None or self.views == 1:
            return {self._name: np.asarray(self._features[0][self._rows[0, indices]])}
        features = np.empty((len(indices), *self.specs[self._name].shape), self._features[0].dtype)
        for view in np.unique(views):
            chosen = views == view
            features[chosen] = self._features[view][self._rows[view, indices[chosen]]]
        return {self._name: features}


class RegionFeatureSource:
    """Region features, read from their files batch by batch.

    Args:
        features: the records' files.
        on_bad_record: what to do with files with NaN or with boxes outside the image: `"skip"` masks their
            captions from then on, with a warning; `"fail"` raises.
    """

    def __init__(self, features: RegionFeatures, on_bad_record: OnBadRecord = "skip"):
        self._features, self._on_bad_record, self.views = features, on_bad_record, 1
        size = features.feature_size
        self.specs = {
            "features": tf.TensorSpec((None, size), tf.float32),
            "mask": tf.TensorSpec((None,), tf.bool),
        }
        if features.need_boxes:
            self.specs["boxes"] = tf.TensorSpec((None, 4), tf.float32)
        if features.need_pooled:
            self.specs["pooled"] = tf.TensorSpec((size,), tf.float32)
        self.usable, self.skipped = features.usable, features.skipped
        self.groups = features.bucket(features.regions)
        self._probe()

    def _probe(self) -> None:
        """Reads a few files. Raises InputError if none of them can be used."""
        first_error = None
        for index in np.flatnonzero(self.usable)[:_PROBED]:
            try:
                self._features.one(index)
            except InputError as error:
                first_error = first_error or error
            else:
                return
        if first_error is not None:
            raise first_error

    def fetch(self, indices: np.ndarray, views: np.ndarray | None = None) -> dict[str, np.ndarray]:
        regions = int(self.groups[indices].max(initial=1))
        images = [self._inputs_of(index, regions) for index in indices]
        return {name: np.stack([image[name] for image in images]) for name in self.specs}

    def _inputs_of(self, index: int, regions: int) -> dict[str, np.ndarray]:
        """The inputs of one image, or zeros if it cannot be read."""
        # A bad file is read only once.
        if self.usable[index]:
            try:
                return self._features.fetch(index, regions)
            except InputError as error:
                if self._on_bad_record == "fail":
                    raise
                # Another thread may have found it first.
                if self.usable[index]:
                    self.usable[index] = False
                    self.skipped.append(Skipped(self._features.image_ids[index], str(error)))
                    warnings.warn(f"skipped: {error}", stacklevel=2)
        return {
            name: np.zeros([regions if n is None else n for n in spec.shape], spec.dtype.as_numpy_dtype)
            for name, spec in self.specs.items()
        }


class TeachingSource:
    """Inputs of a captioner and what it learns besides captions.

    These are, under the names `teacherN_NAME`, the inputs of its teachers for the same images, and, as
    `objects`, which objects are in each image.

    Args:
        source: the captioner's own inputs; its groups and skipped records count.
        teachers: a source for each teacher, of the same records; all take the same view of an image.
        objects: float32 [records, K], see `settings.build.object_targets`; None without them.
    """

    def __init__(
        self, source: ImageSource, teachers: Sequence[ImageSource] = (), objects: np.ndarray | None = None
    ):
        self._source, self._teachers, self._objects = source, teachers, objects
        self.specs = {
            **source.specs,
            **{
                teacher_input(number, name): spec
                for number, teacher in enumerate(teachers)
                for name, spec in teacher.specs.items()
            },
        }
        if objects is not None:
            self.specs["objects"] = tf.TensorSpec(objects.shape[1:], tf.float32)
        self.groups, self.skipped = source.groups, source.skipped
        self.views = min([source.views, *(teacher.views for teacher in teachers)])

    @property
    def usable(self) -> np.ndarray:
        return np.logical_and.reduce([self._source.usable, *(teacher.usable for teacher in self._teachers)])

    def fetch(self, indices: np.ndarray, views: np.ndarray | None = None) -> dict[str, np.ndarray]:
        inputs = self._source.fetch(indices, views)
        for number, teacher in enumerate(self._teachers):
            inputs |= {
                teacher_input(number, name): value for name, value in teacher.fetch(indices, views).items()
            }
        return inputs if self._objects is None else {**inputs, "objects": self._objects[indices]}


def teacher_input(number: int, name: str) -> str:
    """Name of the input `name` of teacher `number` in a batch."""
    return f"teacher{number}_{name}"
