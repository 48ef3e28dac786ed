"""Exported .tflite files: reading the captioner, its vocabulary and its description, and running it."""

import io
import json
import math
import os
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tfsparsecap.captioning.captioners import NAMES
from tfsparsecap.captioning.inference.confidence import Calibration, caption_length, likely_objects
from tfsparsecap.captioning.inference.description import (
    DESCRIPTION,
    JOINS,
    ChangedFile,
    check_description,
    check_digests,
)
from tfsparsecap.captioning.inference.generate import Caption, CaptionGenerator, Captions, Inputs
from tfsparsecap.captioning.metrics.caption_statistics import token_faults
from tfsparsecap.core.files import DAMAGE, read_bytes
from tfsparsecap.core.litert import signature_runner
from tfsparsecap.errors import InputError, check_whole, first_line

#: Name of the associated file with the tokens.
VOCABULARY = "vocabulary.txt"
#: The version of the layout that this package writes, and the newest that it reads.
FORMAT_VERSION = 1
#: Name of the search in the file; see docs/bundle.md.
CAPTION_SIGNATURE = "caption"

#: Scores of beams without a caption are not above it: minus infinity, which JSON does not have, becomes the
#: lowest float32 in a file.
NO_CAPTION = -1e30
_OUTPUTS = {"token_ids", "scores"}
_OBJECTS = "objects"  # of captioners that predict objects
_IDENTIFIER = b"TFL3"
#: Bytes of a FlatBuffer at most.
_LARGEST = 2 << 30
# Limits far above any real file: they keep a compressed archive from filling the memory.
_MAX_BYTES = {DESCRIPTION: 4 << 20, VOCABULARY: 16 << 20}
_ADVICE = f"give a run folder, an exported .tflite file, {' or '.join(NAMES)}"


def read_bundle(path: str | os.PathLike[str]) -> tuple[dict[str, Any], list[str]]:
    """The description and the vocabulary in a .tflite file that this package exported.

    Args:
        path: the file. Nothing in it is executed.

    Returns:
        The content of `captioner.json`, and the tokens in the order of their ids; no tokens if the file was
        exported without a vocabulary.

    Raises:
        InputError: the file does not exist, is not a .tflite file, was not exported by this package, or its
            graph or vocabulary was changed after the export.

    Examples:
        >>> description, vocabulary = read_bundle("scenes.tflite")  # doctest: +SKIP
        >>> description["input"], len(vocabulary) == description["vocabulary_size"]  # doctest: +SKIP
        ('image', True)
    """
    description, tokens, _ = _read_parts(_content(Path(path)), Path(path))
    return description, tokens


def has_digest(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a captioner whose graph has the digest in its description.

    Raises:
        ChangedFile: its graph or vocabulary was changed after the export.
    """
    try:
        return _read_parts(_content(Path(path)), Path(path))[2]
    except ChangedFile:
        raise
    except InputError:
        return False


def check_trust(path: str | os.PathLike[str], trust: bool, digest: bool | None = None) -> None:
    """Checks that a file may run in this process: its graph has the digest in its description, or is trusted.

    Args:
        trust: whether the user knows where the file comes from.
        digest: the value of `has_digest`; None reads the file.

    Raises:
        InputError: neither is the case.
        ChangedFile: as in `has_digest`.
    """
    if not (has_digest(path) if digest is None else digest) and not trust:
        raise InputError(
            f"{path} has no digest that would show damage, and the runtime is no sandbox: a damaged or forged"
            " file can crash it or do worse; export it again, or, if you know where the file comes from, give"
            " --trust (in Python trust=True)"
        )


def _content(path: Path) -> bytes:
    """The bytes of a .tflite file."""
    content = read_bytes(path, _ADVICE, _LARGEST)
    if content[4:8] != _IDENTIFIER:
        raise InputError(f"{path} is not a .tflite file: give one that tfsparsecap-export wrote")
    return content


def _read_parts(content: bytes, path: Path) -> tuple[dict[str, Any], list[str], bool]:
    """Description and vocabulary of a file, and whether its graph has the digest in its description."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            description = json.loads(_decoded(_member(archive, DESCRIPTION, path), DESCRIPTION, path))
            text = _member(archive, VOCABULARY, path) if VOCABULARY in archive.namelist() else None
            graph = memoryview(content)[: min(info.header_offset for info in archive.infolist())]
    except InputError:
        raise
    except DAMAGE as error:
        raise InputError(
            f"{path} has no readable {DESCRIPTION} (the file is cut short, or is not a captioner): give one"
            " that tfsparsecap-export wrote"
        ) from error
    version = description.get("format_version") if isinstance(description, dict) else None
    if not isinstance(version, int) or isinstance(version, bool):
        raise InputError(f"{DESCRIPTION} in {path} has no format version: export the run again")
    if version > FORMAT_VERSION:
        raise InputError(
            f"{path} has a newer format than {FORMAT_VERSION}, the newest that this package reads: update"
            " tfsparsecap"
        )
    checked = check_digests(description, graph, text, path)
    tokens = [] if text is None else _decoded(text, VOCABULARY, path).split("\n")
    return description, tokens[:-1] if tokens and not tokens[-1] else tokens, checked


class TFLiteCaptioner(CaptionGenerator):
    """An exported captioner on LiteRT, the TensorFlow Lite runtime.

    Args:
        path: a .tflite file that `tfsparsecap-export` wrote.
        threads: CPU threads of the runtime.
        trust: run the file even if its description has no digest of the graph, as those of older versions and
            of other programs. The runtime is no sandbox: a damaged file can crash the process.

    Attributes:
        metadata: the content of `captioner.json`.
        calibration: of the confidence; None if the file has none.
        objects: names of the objects whose probabilities the file returns.
        vocabulary: the tokens in the order of their ids.
        image_size: side of the square images in pixels, or None if the file takes region features.
        features_shape: (N, D), the number of regions and the length of a feature, or None if the file takes
            images.

    Raises:
        InputError: the file is not a captioner, was changed after its export, has no digest and is not
            trusted, or the runtime cannot load it.

    Examples:
        >>> captioner = TFLiteCaptioner("scenes.tflite")  # doctest: +SKIP
        >>> print(captioner.generate("photo.jpg")[0])  # doctest: +SKIP
        a red circle above a blue square
    """

    def __init__(self, path: str | os.PathLike[str], threads: int = 1, *, trust: bool = False) -> None:
        threads = check_whole("threads", threads, at_least=1)
        self.path = Path(path)
        self.label = str(path)
        content = _content(self.path)
        self.metadata, self.vocabulary, digest = _read_parts(content, self.path)
        check_trust(path, trust, digest)
        check_description(self.metadata, self.path)
        self.calibration = Calibration.from_description(self.metadata)
        self.image_size = self.metadata.get("image_size")
        self.objects = tuple(self.metadata.get("objects") or ())
        try:
            self._run, self._inputs_of_graph, outputs = _load(content, threads)
        except (ValueError, RuntimeError, OSError) as error:
            raise InputError(
                f"the runtime cannot load {path} ({first_line(error)}): export the run again"
            ) from error
        missing = (_OUTPUTS | {_OBJECTS} if self.objects else _OUTPUTS) - outputs
        if missing:
            raise InputError(f"{path} is not a captioner: it has no output {' and '.join(sorted(missing))}")
        self.input_names = tuple(self._inputs_of_graph)
        self.features_shape: tuple[int, int] | None = None
        if "features" in self._inputs_of_graph:
            shape = self._inputs_of_graph["features"][0]
            if len(shape) != 3:
                raise InputError(
                    f"{path} takes features of shape {list(shape)}, not [1, N, D]: export it again"
                )
            self.features_shape = shape[1:]
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
    ) -> Callable[[Sequence[Inputs]], list[Captions]]:
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
        outputs = self._outputs(image, features)
        return outputs["token_ids"], outputs["scores"]

    def _outputs(self, image: np.ndarray | None, features: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The outputs of the graph; arguments and errors as of `token_ids`."""
        inputs = features if image is None else {"image": image, **features}
        if inputs.keys() != self._inputs_of_graph.keys():
            raise InputError(
                f"{self.path} takes {' and '.join(self.input_names)}, not {' and '.join(inputs) or 'nothing'}"
            )
        feeds = {}
        for name, (shape, dtype) in self._inputs_of_graph.items():
            value = np.asarray(inputs[name])
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
                f"the runtime cannot run {self.path} ({first_line(error)}): export the run again"
            ) from error
        token_ids, scores = outputs["token_ids"], outputs["scores"]
        if token_ids.ndim != 2 or token_ids.dtype.kind not in "iu" or scores.shape != token_ids.shape[:1]:
            raise InputError(
                f"{self.path} gives token_ids {token_ids.dtype} {list(token_ids.shape)} and scores"
                f" {scores.dtype} {list(scores.shape)}, not those of captions: export the run again"
            )
        if self.objects:
            objects = outputs[_OBJECTS]
            if objects.shape != (len(self.objects),) or not ((objects >= 0) & (objects <= 1)).all():
                raise InputError(
                    f"{self.path} gives no probability for each of its {len(self.objects)} objects: export"
                    " the run again"
                )
        return outputs

    def caption(self, image: np.ndarray | None = None, **features: np.ndarray) -> Captions:
        """The captions of one image that already has the size of the input, best first, and its objects.

        Arguments and errors as of `token_ids`. Beams without a caption are left out.
        """
        outputs = self._outputs(image, features)
        probabilities = outputs[_OBJECTS] if self.objects else np.zeros(0, np.float32)
        captions = (
            self._caption(row, float(score), probabilities)
            for row, score in zip(outputs["token_ids"], outputs["scores"], strict=True)
            if NO_CAPTION < score < math.inf
        )
        return Captions(captions, objects=likely_objects(self.objects, probabilities))

    def _caption(self, token_ids: np.ndarray, score: float, probabilities: np.ndarray) -> Caption:
        end_id, confidence = self.metadata["special_ids"]["end"], None
        if self.calibration is not None:
            length = caption_length(token_ids, end_id)
            confidence = self.calibration.probability(score, length, probabilities)
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
            if not 0 <= token < len(self.vocabulary):
                raise InputError(
                    f"{self.path} gives token {token}, but its {VOCABULARY} has {len(self.vocabulary)} lines:"
                    " export the run again"
                )
            if token not in skipped:
                tokens.append(self.vocabulary[token])
        return JOINS[self.metadata["join"]](tokens)


#: Name of an input -> its shape and type.
_Inputs = dict[str, tuple[tuple[int, ...], np.dtype]]


def _load(content: bytes, threads: int) -> tuple[Callable[..., dict[str, np.ndarray]], _Inputs, set[str]]:
    """The function of a file, its inputs, and the names of its outputs."""
    run = signature_runner(content, CAPTION_SIGNATURE, num_threads=threads)
    inputs = {
        name: (tuple(details["shape"].tolist()), np.dtype(details["dtype"]))
        for name, details in run.get_input_details().items()
    }
    return run, inputs, set(run.get_output_details())


def _member(archive: zipfile.ZipFile, name: str, path: Path) -> bytes:
    """A file of the archive."""
    info = archive.getinfo(name)
    content, largest = b"", _MAX_BYTES[name]
    if info.file_size <= largest:
        # Read no more than that: the size in the archive may be false.
        with archive.open(info) as member:
            content = member.read(largest + 1)
    if max(info.file_size, len(content)) > largest:
        raise InputError(f"{name} in {path} is larger than {largest >> 20} MB: it is not one of this package")
    return content


def _decoded(content: bytes, name: str, path: Path) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{name} in {path} is not UTF-8 text (byte {error.start:,}): export the run again"
        ) from error
