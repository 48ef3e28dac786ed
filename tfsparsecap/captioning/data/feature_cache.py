"""Features of a frozen encoder, computed once and reused until encoder or images change.

The encoder runs on LiteRT where it can: that takes half of TensorFlow's time on a CPU.
"""

import functools
import hashlib
import importlib.util
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tqdm import tqdm

from tfsparsecap.captioning.data.augmentation import read_view
from tfsparsecap.captioning.data.records import BadRecords, OnBadRecord, Record, Skipped
from tfsparsecap.core.array_files import array_header
from tfsparsecap.core.files import DAMAGE, atomic_path, locked, make_folder, remove_leftovers
from tfsparsecap.core.hidden_stderr import hidden_stderr
from tfsparsecap.core.keras_internals import conversion_error
from tfsparsecap.errors import InputError

_RUNTIME = "ai_edge_litert"
# Largest difference between features of the two, as a share of the largest feature.
_TOLERANCE = 1e-3


def litert_encoder(encoder: keras.Layer, image_size: int) -> Callable[[np.ndarray], np.ndarray] | None:
    """Converts an encoder to float32 operations of LiteRT, in memory; takes seconds.

    Args:
        encoder: built Keras layer, float32 [B, S, S, 3] (0 to 255) -> [B, N, D], in inference mode.
        image_size: `S`.

    Returns:
        A function from images, uint8 [n, S, S, 3], to features, float32 [n, N, D]. None if TensorFlow has a
        GPU, the encoder does not compute in float32, or LiteRT is not installed, lacks an operation or
        returns other features.

    Examples:
        >>> encode = litert_encoder(tfsparsecap.captioning.models.MobileNetV1Encoder(), 48)  # doctest: +SKIP
        >>> encode(np.zeros((5, 48, 48, 3), np.uint8)).shape  # doctest: +SKIP
        (5, 36, 192)
    """
    if tf.config.list_logical_devices("GPU") or encoder.compute_dtype != "float32":
        return None
    if importlib.util.find_spec(_RUNTIME) is None:
        return None
    # LiteRT gets constants, not variables.
    constants = [(variable, keras.ops.convert_to_numpy(variable)) for variable in encoder.variables]

    @tf.function(autograph=False)
    def features_of(image: tf.Tensor) -> tf.Tensor:
        values = [(variable, tf.constant(value)) for variable, value in constants]
        with keras.StatelessScope(state_mapping=values):
            return encoder(image, training=False)

    concrete = features_of.get_concrete_function(tf.TensorSpec([1, image_size, image_size, 3], tf.float32))
    sample = np.random.default_rng(0).integers(0, 256, (1, image_size, image_size, 3), np.uint8)
    expected = keras.ops.convert_to_numpy(concrete(tf.cast(sample, tf.float32)))
    try:
        converter = tf.lite.TFLiteConverter.from_concrete_functions([concrete], tf.Module())
        with hidden_stderr():
            encode = _function_of(converter.convert())
        close = np.abs(encode(sample) - expected).max() <= _TOLERANCE * np.abs(expected).max()
    except (conversion_error(), RuntimeError, ValueError):  # an operation is missing, or a limit exceeded
        return None
    return encode if close else None


def _function_of(content: bytes) -> Callable[[np.ndarray], np.ndarray]:
    """The function that a converted encoder computes."""
    from ai_edge_litert.interpreter import Interpreter

    setting = os.environ.get("TF_NUM_INTRAOP_THREADS", "")
    threads = int(setting) if setting.isdigit() else 0
    interpreter = Interpreter(model_content=content, num_threads=threads or os.cpu_count())
    interpreter.allocate_tensors()
    input_index, output_index = (
        details[0]["index"] for details in (interpreter.get_input_details(), interpreter.get_output_details())
    )

    def encode(images: np.ndarray) -> np.ndarray:
        features = []
        for image in images:  # a batch takes longer per image
            interpreter.set_tensor(input_index, image[None].astype(np.float32))
            interpreter.invoke()
            features.append(interpreter.get_tensor(output_index)[0])
        return np.stack(features)

    return encode


# Part of every key: increase it when read_image, the file format or the key changes.
_FORMAT = 4
_MANY_IMAGES = 500
# Bytes of an image that its key depends on: at its start, middle and end.
_PIECE = 4096
_READERS = 16


@dataclass(frozen=True)
class FeatureCache:
    """Features of many images in one memory-mapped file.

    Attributes:
        path: the `.npy` file.
        features: float16 [images, N, D], memory-mapped and read-only.
        row_of: `image_id -> row`; images that could not be read are missing.
        skipped: images that could not be read, with reasons.
    """

    path: Path
    features: np.ndarray
    row_of: dict[str, int]
    skipped: list[Skipped] = field(default_factory=list)

    def rows(self, image_ids: Sequence[str]) -> np.ndarray:
        """Rows of images in `features`, int64 [len(image_ids)].

        Raises:
            InputError: an image is not in the cache.
        """
        try:
            return np.array([self.row_of[name] for name in image_ids], np.int64)
        except KeyError as error:
            raise InputError(
                f"{self.path} has no features of the image {error.args[0]}: "
                "compute them for all records, or leave it out"
            ) from error


def cached_features(
    records: Sequence[Record],
    encoder: keras.Layer,
    image_size: int,
    folder: str | os.PathLike,
    *,
    view: int = 0,
    batch_size: int = 32,
    on_bad_record: OnBadRecord = "skip",
    progress: bool = True,
) -> FeatureCache:
    """Features of the records' images, from the cache in `folder` or computed and stored there.

    The file's name is a digest of everything the features depend on: the encoder's class, configuration and
    weights, the image size, and name, size and content of every image (4096 bytes at its start, middle and
    end), so it stays valid when the images are copied or moved. One folder can have caches of several
    encoders; old ones are not deleted. If another process computes the same features, this one waits for it.

    Args:
        records: the records, in any order.
        encoder: Keras layer, float32 [B, S, S, 3] (0 to 255) -> [B, N, D]; its `get_config` has all settings.
        image_size: `S`, side of the square that images are resized to, in pixels.
        folder: created if missing.
        view: which view of each image is encoded, see `augmentation.read_view`; 0 is the image itself.
        batch_size: number of images encoded at once.
        on_bad_record: `"skip"` lists images that cannot be read in `skipped`; `"fail"` raises.
        progress: show a progress bar while encoding.

    Raises:
        InputError: no image can be read, one cannot be read and `on_bad_record` is `"fail"`, the disk is
            full (no partial files remain), or the features overflow float16.

    Examples:
        >>> cache = cached_features(data.records, encoder, 224, ".cache")  # doctest: +SKIP
        >>> cache.features[cache.rows(["dog.jpg"])].shape  # doctest: +SKIP
        (1, 49, 768)
    """
    folder = Path(folder)
    images = {record.image_id: record.image for record in records}
    if not images:
        raise InputError("there are no images to encode: use a split with images")
    # Builds the encoder and determines its output shape.
    probe = encoder(tf.zeros([1, image_size, image_size, 3]), training=False)
    if len(probe.shape) != 3:
        raise ValueError(
            f"the encoder's output shape is {tuple(probe.shape)}: it must be [images, regions, depth]"
        )
    digest = _digest(images, encoder, image_size, view)
    array_file, index_file = (folder / f"features-{digest[:24]}{suffix}" for suffix in (".npy", ".json"))

    remove_leftovers(folder)  # also if nothing is written: they may have hundreds of megabytes
    shape = tuple(probe.shape[1:])
    cache = _open(array_file, index_file, digest, shape)
    if cache is None:

        @functools.cache  # once
        def busy() -> None:
            if progress:
                tqdm.write(f"waiting for another process, which computes the same features in {folder}")

        with locked(folder / f"features-{digest[:24]}.lock", busy):
            # Another process may have computed them in the meantime.
            cache = _open(array_file, index_file, digest, shape)
            if cache is None:
                _check_space(folder, len(images) * int(np.prod(shape)) * np.dtype(np.float16).itemsize)
                bad = BadRecords(on_bad_record)
                batches = _encode(images, encoder, image_size, view, batch_size, bad, progress)
                _write(array_file, index_file, digest, shape, batches, bad)
                cache = _open(array_file, index_file, digest, shape)
    if cache is None:
        raise InputError(f"{array_file} was changed while it was written: run this again")
    bad = BadRecords(on_bad_record)
    for skipped in cache.skipped:
        bad.add(skipped.where, skipped.why)
    return cache


def _write(
    array_file: Path,
    index_file: Path,
    digest: str,
    shape: tuple[int, ...],
    batches: Iterator[tuple[list[str], np.ndarray]],
    bad: BadRecords,
) -> None:
    """Writes the features of all batches, and what their rows are."""
    names: list[str] = []
    with (
        atomic_path(index_file) as index_temporary,
        atomic_path(array_file) as array_temporary,
        array_temporary.open("wb") as file,
    ):
        _write_header(file, 0, shape)
        for batch_names, features in batches:
            if not np.isfinite(features).all():
                raise InputError(
                    f"features of {batch_names[0]} or one of the {len(batch_names) - 1} images after it "
                    "are not finite in float16: choose an encoder or a layer with outputs below 65504"
                )
            names.extend(batch_names)
            # Not through a memory map, which would crash the process if the disk is full.
            file.write(np.ascontiguousarray(features).data)
        if not names:
            raise InputError(f"none of the {len(bad.skipped)} images can be read; {bad.skipped[0].why}")
        file.seek(0)
        _write_header(file, len(names), shape)
        reasons = [[entry.where, entry.why] for entry in bad.skipped]
        index_temporary.write_text(
            json.dumps({"digest": digest, "images": names, "skipped": reasons}), encoding="utf-8"
        )


def _open(array_file: Path, index_file: Path, digest: str, shape: tuple[int, ...]) -> FeatureCache | None:
    """The cache on disk, whose features have a shape; None if it is missing, incomplete or damaged."""
    if not (index_file.is_file() and array_file.is_file()):
        return None
    try:
        index = json.loads(index_file.read_text(encoding="utf-8"))
        with array_file.open("rb") as stream:
            stored, _, dtype = array_header(stream)
        # NumPy 2 crashes if it maps a file whose values have no bytes.
        if dtype != np.float16 or stored != (len(index["images"]), *shape) or index["digest"] != digest:
            return None
        features = np.load(array_file, mmap_mode="r", allow_pickle=False)
        skipped = [Skipped(str(where), str(why)) for where, why in index["skipped"]]
        row_of = {str(name): row for row, name in enumerate(index["images"])}
    except DAMAGE:
        return None
    return FeatureCache(array_file, features, row_of, skipped)


def _encode(
    images: dict[str, Path],
    encoder: keras.Layer,
    image_size: int,
    view: int,
    batch_size: int,
    bad: BadRecords,
    progress: bool,
) -> Iterator[tuple[list[str], np.ndarray]]:
    """Names and features, float16 [n, N, D], of the readable images of each batch."""

    def read(name: str) -> np.ndarray | InputError:
        try:
            return read_view(images[name], image_size, view, name)
        except InputError as error:
            return error

    @tf.function(reduce_retracing=True)
    def with_tensorflow(batch: tf.Tensor) -> tf.Tensor:
        return encoder(tf.cast(batch, tf.float32), training=False)

    names = list(images)
    # The conversion takes as long as some hundred images.
    converted = litert_encoder(encoder, image_size) if len(names) >= _MANY_IMAGES else None
    encode = converted or (lambda batch: with_tensorflow(batch).numpy())
    batches = [names[start : start + batch_size] for start in range(0, len(names), batch_size)]
    with (
        ThreadPoolExecutor(os.cpu_count()) as threads,
        tqdm(
            total=len(names),
            unit="image",
            desc=f"encoding view {view}",
            disable=not progress,
        ) as bar,
    ):
        # The next batch is read while one is encoded.
        following = [threads.submit(read, name) for name in batches[0]]
        for number, batch in enumerate(batches, 1):
            results = [future.result() for future in following]
            following = [threads.submit(read, name) for later in batches[number:][:1] for name in later]
            readable = {}
            for name, result in zip(batch, results, strict=True):
                if isinstance(result, InputError):
                    bad.add(name, str(result))
                else:
                    readable[name] = result
            if readable:
                features = encode(np.stack(list(readable.values())))
                with np.errstate(over="ignore"):  # the caller checks that they are finite
                    yield list(readable), features.astype(np.float16)
            bar.update(len(batch))


def _write_header(file: Any, rows: int, shape: Sequence[int]) -> None:
    # NumPy pads the header so that the first number can grow when it is written again.
    header = {"descr": "<f2", "fortran_order": False, "shape": (rows, *(int(size) for size in shape))}
    np.lib.format.write_array_header_1_0(file, header)


def _check_space(folder: Path, needed: int) -> None:
    make_folder(folder)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise InputError(
            f"the features need {needed / 1e9:.2f} GB but {folder} has {free / 1e9:.2f} GB left: "
            "free some space or choose another folder"
        )


def _fingerprint(path: Path) -> list[Any] | None:
    """Size of a file, and a digest of pieces of it; None if it cannot be read."""
    try:
        size = path.stat().st_size
        pieces = hashlib.sha256()
        with path.open("rb") as file:
            for start in sorted({0, size // 2, max(0, size - _PIECE)}):
                file.seek(start)
                pieces.update(file.read(_PIECE))
    except OSError:
        return None
    return [size, pieces.hexdigest()]


def _digest(images: dict[str, Path], encoder: keras.Layer, image_size: int, view: int) -> str:
    """A digest of everything that the features depend on."""
    with ThreadPoolExecutor(_READERS) as threads:
        names = sorted(images)
        files = list(zip(names, threads.map(_fingerprint, map(images.get, names)), strict=True))
    weights = hashlib.sha256()
    for variable in encoder.weights:
        value = np.asarray(variable)
        weights.update(f"{value.dtype} {value.shape}".encode())
        weights.update(np.ascontiguousarray(value).tobytes())
    # Keras generates the name of a layer, and neither it nor `trainable` changes the features.
    config = {k: v for k, v in encoder.get_config().items() if k not in ("name", "trainable")}
    key = {
        "format": _FORMAT,
        "encoder": [keras.saving.get_registered_name(type(encoder)), config],
        "weights": weights.hexdigest(),
        "image_size": image_size,
        "images": files,
        "view": view,
    }
    return hashlib.sha256(json.dumps(key, sort_keys=True, default=str).encode()).hexdigest()
