"""Exported .tflite files: reading the captioner, its vocabulary and its description, and running it."""

import json
import mmap
import os
import re
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tfsparsecap.errors import InputError
from tfsparsecap.files import DAMAGE
from tfsparsecap.inference.confidence import Calibration, caption_length
from tfsparsecap.inference.generate import Caption, CaptionGenerator, Inputs
from tfsparsecap.metrics.sentence_faults import token_faults

#: Names of the associated files.
DESCRIPTION, VOCABULARY = "captioner.json", "vocabulary.txt"
#: The version of the layout that this package writes, and the newest that it reads.
FORMAT_VERSION = 1
SIGNATURE = "caption"

_BYTE = re.compile("<0x([0-9A-F]{2})>")


def _join_pieces(tokens: list[str]) -> str:
    """SentencePiece's text: U+2581 is a space, `<0xNN>` is a byte."""
    found = (_BYTE.fullmatch(token) for token in tokens)
    parts = [
        bytes([int(byte[1], 16)]) if byte else token.replace("\u2581", " ").encode()
        for token, byte in zip(tokens, found, strict=True)
    ]
    return b"".join(parts).decode("utf-8", "replace").strip(" ")


# How tokens become a caption, by the value of `join` in the description.
_JOINS: dict[str, Callable[[list[str]], str]] = {"words": " ".join, "pieces": _join_pieces}
_MAX_IMAGE_SIZE = 4096
# The score of a beam without a caption is minus infinity, which the converter turns into the lowest float32.
_NO_CAPTION = -1e30
_OUTPUTS = {"token_ids", "scores"}
_IDENTIFIER = b"TFL3"
# Limits far above any real file: they keep a malicious archive from filling the memory.
_MAX_BYTES = {DESCRIPTION: 4 << 20, VOCABULARY: 16 << 20}
_MAX_FILES = 1000
_ENTRY = b"PK\x01\x02"


def read_bundle(path: str | os.PathLike) -> tuple[dict, list[str]]:
    """The description and the vocabulary in a .tflite file that this package exported.

    Args:
        path: the file. Nothing in it is executed.

    Returns:
        The content of `captioner.json`, and the tokens in the order of their ids; no tokens if the file was
        exported without a vocabulary.

    Raises:
        InputError: the file does not exist, is not a .tflite file, or was not exported by this package.

    Examples:
        >>> description, vocabulary = read_bundle("scenes.tflite")  # doctest: +SKIP
        >>> description["input"], len(vocabulary) == description["vocabulary_size"]  # doctest: +SKIP
        ('image', True)
    """
    path = Path(path)
    try:
        if path.exists() and not path.is_file():
            raise InputError(
                f"cannot read {path}: it is not a file; give a run folder or an exported .tflite file"
            )
        with path.open("rb") as file:
            if file.read(8)[4:] != _IDENTIFIER:
                raise InputError(f"{path} is not a .tflite file: give one that tfsparsecap-export wrote")
            with open_archive(file) as archive:
                description = json.loads(_text(archive, DESCRIPTION, path))
                names = archive.namelist()
                tokens = _text(archive, VOCABULARY, path).split("\n") if VOCABULARY in names else []
    except InputError:
        raise
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror or error}; give a run folder or an exported .tflite file"
        ) from error
    except DAMAGE as error:
        raise InputError(
            f"{path} has no readable {DESCRIPTION} (the file is cut short, or is not a captioner): give one"
            " that tfsparsecap-export wrote"
        ) from error
    if not isinstance(description, dict) or not isinstance(description.get("format_version"), int):
        raise InputError(f"{DESCRIPTION} in {path} has no format version: export the run again")
    if description["format_version"] > FORMAT_VERSION:
        raise InputError(
            f"{path} has format version {description['format_version']}, and this package reads versions up"
            f" to {FORMAT_VERSION}: update tfsparsecap"
        )
    return description, tokens[:-1] if tokens and not tokens[-1] else tokens


class TFLiteCaptioner(CaptionGenerator):
    """An exported captioner on LiteRT, the TensorFlow Lite runtime.

    Args:
        path: a .tflite file that `tfsparsecap-export` wrote.
        threads: CPU threads of the runtime.

    Attributes:
        metadata: the content of `captioner.json`.
        calibration: of the confidence; None if the file has none.
        vocabulary: the tokens in the order of their ids.
        image_size: side of the square images in pixels, or None if the file takes region features.
        features_shape: (N, D), the number of regions and the length of a feature, or None if the file takes
            images.

    Raises:
        InputError: the file is not a captioner, or the runtime cannot load it.

    Examples:
        >>> captioner = TFLiteCaptioner("scenes.tflite")  # doctest: +SKIP
        >>> print(captioner.generate("photo.jpg")[0])  # doctest: +SKIP
        a red circle above a blue square
    """

    def __init__(self, path: str | os.PathLike, threads: int = 1) -> None:
        from ai_edge_litert.interpreter import Interpreter  # takes half a second

        if threads < 1:
            raise InputError(f"threads is {threads}: it must be at least 1")
        self.path = Path(path)
        self.label = str(path)
        self.metadata, self.vocabulary = read_bundle(path)
        _check_description(self.metadata, self.path)
        self.calibration = Calibration.from_description(self.metadata)
        self.image_size = self.metadata.get("image_size")
        try:
            interpreter = Interpreter(model_content=self.path.read_bytes(), num_threads=threads)
            self._run = interpreter.get_signature_runner(SIGNATURE)
        except (ValueError, RuntimeError, OSError) as error:
            raise InputError(
                f"the runtime cannot load {path} ({_first_line(error)}): export the run again"
            ) from error
        missing = _OUTPUTS - self._run.get_output_details().keys()
        if missing:
            raise InputError(f"{path} is not a captioner: it has no output {' and '.join(sorted(missing))}")
        self._inputs_of_graph = {
            name: (tuple(details["shape"].tolist()), np.dtype(details["dtype"]))
            for name, details in self._run.get_input_details().items()
        }
        self.input_names = tuple(self._inputs_of_graph)
        self.features_shape: tuple[int, int] | None = None
        if "features" in self._inputs_of_graph:
            self.features_shape = self._inputs_of_graph["features"][0][1:]
        self.max_regions, self.feature_size = self.features_shape or (0, None)

    def check_beam(self, beam: int | None) -> None:
        """Raises InputError if `beam` is neither None nor the beam in the file."""
        if beam not in (None, self.metadata.get("beam")):
            raise InputError(
                f"{self.path} has a fixed beam of {self.metadata.get('beam')}, not {beam}: leave it out,"
                f" or export the run with tfsparsecap-export --beam {beam}"
            )

    def search(
        self, beam: int | None = None, samples: int | None = None, **sampling: Any
    ) -> Callable[[Sequence[Inputs]], list[list[Caption]]]:
        if samples is not None:
            raise InputError(f"{self.path} only has its beam search: give the run folder to sample captions")
        self.check_beam(beam)
        return lambda batch: [self.caption(**inputs) for inputs in batch]

    def token_ids(
        self, image: np.ndarray | None = None, **features: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The token ids of the captions, best first.

        Args:
            image: uint8 [S, S, 3], RGB, for a file that takes images.
            features: for a file that takes region features, `features=` float32 [n, D] of up to N regions,
                and the others of `input_names`, such as `boxes=` float32 [n, 4].

        Returns:
            `(token_ids, scores)`: int32 [beam, T], `pad_id` after the end token; float32 [beam], sums of
            log-probabilities.

        Raises:
            InputError: the file takes other inputs or other shapes, or is damaged.
        """
        given = features if image is None else {"image": image, **features}
        if given.keys() != self._inputs_of_graph.keys():
            raise InputError(
                f"{self.path} takes {' and '.join(self.input_names)}, not {' and '.join(given) or 'nothing'}"
            )
        feeds = {}
        for name, (shape, dtype) in self._inputs_of_graph.items():
            value = np.asarray(given[name])
            if self.features_shape is not None and value.ndim == 2 and value.shape[1:] == shape[2:]:
                # The graph ignores regions that are all zeros.
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
                f"the runtime cannot run {self.path} ({_first_line(error)}): export the run again"
            ) from error
        return outputs["token_ids"], outputs["scores"]

    def caption(self, image: np.ndarray | None = None, **features: np.ndarray) -> list[Caption]:
        """The captions of one image that already has the size of the input, best first.

        Arguments and errors as of `token_ids`. Beams without a caption are left out.
        """
        token_ids, scores = self.token_ids(image, **features)
        return [
            self._caption(row, float(score))
            for row, score in zip(token_ids, scores, strict=True)
            if score > _NO_CAPTION
        ]

    def _caption(self, token_ids: np.ndarray, score: float) -> Caption:
        end_id, confidence = self.metadata["special_ids"]["end"], None
        if self.calibration is not None:
            confidence = self.calibration.probability(score, caption_length(token_ids, end_id))
        faults = token_faults(token_ids.tolist(), end_id, self.metadata.get("unknown_id"))
        return Caption(self.text(token_ids), score, faults, confidence)

    def text(self, token_ids: Sequence[int] | np.ndarray) -> str:
        """The text of a row of token ids, up to the end token and without special tokens.

        Raises:
            InputError: the file was exported without a vocabulary, or with one that is too short.
        """
        special = self.metadata["special_ids"]
        skipped = {*special.values(), self.metadata.get("unknown_id")}
        tokens = []
        for token in map(int, token_ids):
            if token == special["end"]:
                break
            if token >= len(self.vocabulary):
                raise InputError(
                    f"{self.path} gives token {token}, but its {VOCABULARY} has {len(self.vocabulary)} lines:"
                    " export the run again"
                )
            if token not in skipped:
                tokens.append(self.vocabulary[token])
        return _JOINS[self.metadata["join"]](tokens)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _check_description(description: dict, path: Path) -> None:
    """Raises InputError if a description lacks what captioning needs."""
    special, size = description.get("special_ids"), description.get("image_size")
    if not isinstance(special, dict) or not isinstance(special.get("end"), int):
        raise InputError(f"{DESCRIPTION} in {path} does not name the special tokens: export the run again")
    if not isinstance(description.get("join"), str) or description["join"] not in _JOINS:
        raise InputError(f"{DESCRIPTION} in {path} does not say how to join tokens: export the run again")
    if size is not None and (not isinstance(size, int) or not 1 <= size <= _MAX_IMAGE_SIZE):
        raise InputError(
            f"{DESCRIPTION} in {path} gives the image size {size!r}, not 1 to {_MAX_IMAGE_SIZE}: export the"
            " run again"
        )


def open_archive(file: BinaryIO) -> zipfile.ZipFile:
    """The associated files behind the graph of a .tflite file.

    Args:
        file: the whole file, opened in binary mode.

    Raises:
        zipfile.BadZipFile: there is no archive, or it has too many files. `zipfile` raises many other
            exceptions for damaged archives: see `files.DAMAGE`.
    """
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        entries, at = 0, content.find(_ENTRY)
        while at >= 0:
            entries, at = entries + 1, content.find(_ENTRY, at + 1)
            if entries > _MAX_FILES:
                raise zipfile.BadZipFile(f"more than {_MAX_FILES} files")
    return zipfile.ZipFile(file)


def _text(archive: zipfile.ZipFile, name: str, path: Path) -> str:
    """A text file of the archive."""
    info = archive.getinfo(name)
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise InputError(f"{name} in {path} has a compression method that this package never writes")
    content, largest = b"", _MAX_BYTES[name]
    if info.file_size <= largest:
        # Read no more than that: the size in the archive may be false.
        with archive.open(info) as member:
            content = member.read(largest + 1)
    if max(info.file_size, len(content)) > largest:
        raise InputError(f"{name} in {path} is larger than {largest >> 20} MB: it is not one of this package")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{name} in {path} is not UTF-8 text (byte {error.start:,}): export the run again"
        ) from error
