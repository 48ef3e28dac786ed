"""Reading a .tflite bundle and running it: a captioner, its vocabulary and its description in one file."""

import json
import mmap
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np

from tfsparsecap.errors import InputError

#: Names of the associated files.
DESCRIPTION, VOCABULARY = "captioner.json", "vocabulary.txt"
#: The version of the bundle's layout that this package writes, and the newest that it reads.
FORMAT_VERSION = 1
SIGNATURE = "caption"

_BYTE = re.compile("<0x([0-9A-F]{2})>")


def _joined_pieces(tokens: list[str]) -> str:
    """SentencePiece's text: a letter of its own is the space, and what has no piece is spelt in bytes."""
    found = (_BYTE.fullmatch(token) for token in tokens)
    parts = [
        bytes([int(byte[1], 16)]) if byte else token.replace("\u2581", " ").encode()
        for token, byte in zip(tokens, found, strict=True)
    ]
    return b"".join(parts).decode("utf-8", "replace").strip(" ")


# How tokens become a caption, by the name that the description has for it.
_JOINS: dict[str, Callable[[list[str]], str]] = {
    "words": " ".join,
    # SentencePiece marks where words begin.
    "pieces": _joined_pieces,
}
_LARGEST_IMAGE = 4096
# The score of a beam that found nothing is minus infinity, which the converter makes the least float32.
_NOTHING_FOUND = -1e30
_OUTPUTS = {"token_ids", "scores"}
_IDENTIFIER = b"TFL3"
# Bytes, and files, far beyond any bundle: they keep a hostile archive from filling the memory, where a byte
# of JSON, or a line, can take a hundred times its size.
_LARGEST = {DESCRIPTION: 4 << 20, VOCABULARY: 16 << 20}
_MOST_FILES = 1000
_ENTRY = b"PK\x01\x02"
#: All that zipfile and zlib raise on archives that are damaged, or made to do damage.
ARCHIVE_DAMAGE = (
    zipfile.BadZipFile,
    KeyError,
    ValueError,
    NotImplementedError,
    RuntimeError,
    EOFError,
    OverflowError,
    struct.error,
    zlib.error,
)


def read_bundle(path: str | os.PathLike) -> tuple[dict, list[str]]:
    """The description and the vocabulary in a .tflite file that this package exported.

    Args:
        path: the file. Nothing in it is run.

    Returns:
        The content of `captioner.json`, and the tokens in the order of their ids; no tokens where the file
        was exported without a vocabulary.

    Raises:
        InputError: the file is absent, is no .tflite file, or is not one of this package's bundles.

    Example:
        >>> description, vocabulary = read_bundle("scenes.tflite")
        >>> description["input"], len(vocabulary) == description["vocabulary_size"]
        ('image', True)
    """
    path = Path(path)
    try:
        if path.exists() and not path.is_file():
            raise InputError(f"cannot read {path}: it is no file; give an exported .tflite file")
        with path.open("rb") as file:
            head = file.read(8)
            if head[4:] != _IDENTIFIER:
                raise InputError(f"{path} is no .tflite file: give one that tfsparsecap-export wrote")
            with open_archive(file) as archive:
                description = json.loads(_text(archive, DESCRIPTION, path))
                names = archive.namelist()
                tokens = _text(archive, VOCABULARY, path).split("\n") if VOCABULARY in names else []
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror or error}; give an exported .tflite file"
        ) from error
    except ARCHIVE_DAMAGE as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{path} holds no {DESCRIPTION} that can be read (cut short, or no captioner's file):"
            " give a captioner that tfsparsecap-export wrote"
        ) from error
    if not isinstance(description, dict) or not isinstance(description.get("format_version"), int):
        raise InputError(f"{DESCRIPTION} in {path} has no format version: export the run again")
    if description["format_version"] > FORMAT_VERSION:
        raise InputError(
            f"{path} has format version {description['format_version']}, this package reads up to"
            f" {FORMAT_VERSION}: update tfsparsecap"
        )
    return description, tokens[:-1] if tokens and not tokens[-1] else tokens


class TFLiteCaptioner:
    """A captioner on the TensorFlow Lite runtime.

    Args:
        path: a .tflite file that `tfsparsecap-export` wrote.
        threads: CPU threads that the runtime may use.

    Attributes:
        metadata: the content of `captioner.json`.
        vocabulary: the tokens in the order of their ids.
        image_size: side of the square images in pixels, or None where the file takes features.
        features_shape: (N, D), the most regions that the file takes and the length of a feature, or None
            where it takes images.

    Raises:
        InputError: the file is no bundle, or the runtime cannot load it.

    Example:
        >>> captioner = TFLiteCaptioner("scenes.tflite")
        >>> captioner.caption(read_image("photo.jpg", captioner.image_size))[0]
        ('a red circle above a blue square', -1.4...)
    """

    def __init__(self, path: str | os.PathLike, threads: int = 1):
        # The runtime takes half a second to import; reading a bundle does not need it.
        from ai_edge_litert.interpreter import Interpreter

        if threads < 1:
            raise InputError(f"threads is {threads}: give at least 1")
        self.path = Path(path)
        self.metadata, self.vocabulary = read_bundle(path)
        _check_description(self.metadata, self.path)
        self.image_size: int | None = self.metadata.get("image_size")
        try:
            interpreter = Interpreter(model_content=self.path.read_bytes(), num_threads=threads)
            self._run = interpreter.get_signature_runner(SIGNATURE)
        except (ValueError, RuntimeError, OSError) as error:
            raise InputError(
                f"the runtime cannot load {path} ({_first_line(error)}): export the run again"
            ) from error
        missing = _OUTPUTS - self._run.get_output_details().keys()
        if missing:
            raise InputError(f"{path} gives no {' and no '.join(sorted(missing))}: it is no captioner")
        details = self._run.get_input_details()
        self._inputs = {
            name: (tuple(d["shape"].tolist()), np.dtype(d["dtype"])) for name, d in details.items()
        }
        self.features_shape: tuple[int, int] | None = None
        if "features" in self._inputs:
            self.features_shape = self._inputs["features"][0][1:]

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs."""
        return tuple(self._inputs)

    def token_ids(self, image=None, **features) -> tuple[np.ndarray, np.ndarray]:
        """The captions as the graph gives them, best first.

        Args:
            image: uint8 [S, S, 3], RGB, for a file that takes images.
            features: for a file that takes features `features=` float32 [n, D] of up to N regions, and what
                else is in `input_names`, such as `boxes=` float32 [n, 4].

        Returns:
            `(token_ids, scores)`: int32 [beam, T], `pad_id` after the end token; float32 [beam], sums of
            log-probabilities.

        Raises:
            InputError: the file takes other inputs, or of another shape, or is damaged.
        """
        given = features if image is None else {"image": image, **features}
        if given.keys() != self._inputs.keys():
            raise InputError(
                f"{self.path} takes {' and '.join(self._inputs)}, not {' and '.join(given) or 'nothing'}:"
                " give what its description says"
            )
        feeds = {}
        for name, (shape, dtype) in self._inputs.items():
            value = np.asarray(given[name])
            if self.features_shape is not None and value.ndim == 2 and value.shape[1:] == shape[2:]:
                # Rows of zeros are no regions.
                value = np.pad(value, ((0, max(0, shape[1] - len(value))), (0, 0)))
            if value.shape != shape[1:] or not np.can_cast(value.dtype, dtype, "same_kind"):
                raise InputError(
                    f"{self.path} takes {name} of shape {list(shape[1:])} and type {dtype},"
                    f" not {list(value.shape)} and {value.dtype}"
                )
            feeds[name] = value.astype(dtype)[None]
        try:
            outputs = self._run(**feeds)
        except (ValueError, RuntimeError) as error:
            raise InputError(
                f"the runtime cannot run {self.path} ({_first_line(error)}): copy it or export the run again"
            ) from error
        return outputs["token_ids"], outputs["scores"]

    def caption(self, image=None, **features) -> list[tuple[str, float]]:
        """The captions in words, best first, each with the sum of its log-probabilities.

        Arguments and errors as `token_ids`; a beam that found no caption is left out.
        """
        token_ids, scores = self.token_ids(image, **features)
        return [
            (self.text(row), float(score))
            for row, score in zip(token_ids, scores, strict=True)
            if score > _NOTHING_FOUND
        ]

    def text(self, token_ids) -> str:
        """The words of a row of token ids, up to the end token and without special tokens.

        Raises:
            InputError: the file was exported without a vocabulary, or does not fit it.
        """
        special = self.metadata["special_ids"]
        unsaid = {*special.values(), self.metadata.get("unknown_id")}
        words = []
        for token in map(int, token_ids):
            if token == special["end"]:
                break
            if token >= len(self.vocabulary):
                raise InputError(
                    f"{self.path} gives token {token}, its {VOCABULARY} has {len(self.vocabulary)} lines:"
                    " export the run again"
                )
            if token not in unsaid:
                words.append(self.vocabulary[token])
        return _JOINS[self.metadata["join"]](words)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _check_description(description: dict, path: Path) -> None:
    """Raises InputError where a description lacks what captioning needs."""
    special, size = description.get("special_ids"), description.get("image_size")
    if not isinstance(special, dict) or not isinstance(special.get("end"), int):
        raise InputError(f"{DESCRIPTION} in {path} does not name the special tokens: export the run again")
    if not isinstance(description.get("join"), str) or description["join"] not in _JOINS:
        raise InputError(f"{DESCRIPTION} in {path} does not say how words are joined: export the run again")
    if size is not None and (not isinstance(size, int) or not 1 <= size <= _LARGEST_IMAGE):
        raise InputError(
            f"{DESCRIPTION} in {path} gives the image size {size!r}, not 1 to {_LARGEST_IMAGE}: export the"
            " run again"
        )


def open_archive(file: BinaryIO) -> zipfile.ZipFile:
    """The associated files behind a .tflite file's graph.

    Args:
        file: the whole file, opened in binary.

    Raises:
        zipfile.BadZipFile: there is no archive, or one of more files than memory should be spent on. Damage
            makes `zipfile` raise many other things: see `ARCHIVE_DAMAGE`.
    """
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        entries, at = 0, content.find(_ENTRY)
        while at >= 0:
            entries, at = entries + 1, content.find(_ENTRY, at + 1)
            if entries > _MOST_FILES:
                raise zipfile.BadZipFile(f"more than {_MOST_FILES} files")
    return zipfile.ZipFile(file)


def _text(archive: zipfile.ZipFile, name: str, path: Path) -> str:
    """A text file of the archive."""
    info = archive.getinfo(name)
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise InputError(f"{name} in {path} is compressed in a way that this package never writes")
    content, largest = b"", _LARGEST[name]
    if info.file_size <= largest:
        # Bounded, because what an archive says of a file's size need not be true.
        with archive.open(info) as member:
            content = member.read(largest + 1)
    if max(info.file_size, len(content)) > largest:
        raise InputError(f"{name} in {path} is larger than {largest >> 20} MB: no bundle of this package is")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{name} in {path} is no UTF-8 text (byte {error.start:,}): export the run again"
        ) from error
