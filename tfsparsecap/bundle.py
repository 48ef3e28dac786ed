"""Reading a .tflite bundle and running it: a captioner, its vocabulary and its description in one file."""

import json
import os
import zipfile
from pathlib import Path

import numpy as np

from tfsparsecap.errors import InputError

#: Names of the associated files.
DESCRIPTION, VOCABULARY = "captioner.json", "vocabulary.txt"
#: The version of the bundle's layout that this package writes, and the newest that it reads.
FORMAT_VERSION = 1
SIGNATURE = "caption"

_IDENTIFIER = b"TFL3"
# Far beyond any vocabulary; keeps a hostile archive from filling the memory.
_LARGEST_FILE = 64 << 20


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
        with path.open("rb") as file:
            head = file.read(8)
            if head[4:] != _IDENTIFIER:
                raise InputError(f"{path} is no .tflite file: give one that tfsparsecap-export wrote")
            with zipfile.ZipFile(file) as archive:
                description = json.loads(_text(archive, DESCRIPTION, path))
                names = archive.namelist()
                tokens = _text(archive, VOCABULARY, path).split("\n") if VOCABULARY in names else []
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror or error}; give an exported .tflite file"
        ) from error
    except (zipfile.BadZipFile, KeyError, ValueError, NotImplementedError, RuntimeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{path} holds no {DESCRIPTION} that can be read (cut short, or from another program):"
            " give one that tfsparsecap-export wrote"
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
        self.image_size: int | None = self.metadata.get("image_size")
        try:
            interpreter = Interpreter(model_content=self.path.read_bytes(), num_threads=threads)
            self._run = interpreter.get_signature_runner(SIGNATURE)
        except (ValueError, RuntimeError, OSError) as error:
            raise InputError(
                f"the runtime cannot load {path} ({str(error).strip().splitlines()[0]}): export the run again"
            ) from error
        details = self._run.get_input_details()
        self._inputs = {
            name: (tuple(d["shape"].tolist()), np.dtype(d["dtype"])) for name, d in details.items()
        }

    def token_ids(self, image=None, **features) -> tuple[np.ndarray, np.ndarray]:
        """The captions as the graph gives them, best first.

        Args:
            image: uint8 [S, S, 3], RGB, for a file that takes images.
            features: `features=` float32 [N, D] for a file that takes features.

        Returns:
            `(token_ids, scores)`: int32 [beam, T], `pad_id` after the end token; float32 [beam], sums of
            log-probabilities.

        Raises:
            InputError: the file takes other inputs, or of another shape.
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
            if value.shape != shape[1:] or not np.can_cast(value.dtype, dtype, "same_kind"):
                raise InputError(
                    f"{self.path} takes {name} of shape {list(shape[1:])} and type {dtype},"
                    f" not {list(value.shape)} and {value.dtype}"
                )
            feeds[name] = value.astype(dtype)[None]
        outputs = self._run(**feeds)
        return outputs["token_ids"], outputs["scores"]

    def caption(self, image=None, **features) -> list[tuple[str, float]]:
        """The captions in words, best first, each with the sum of its log-probabilities.

        Arguments and errors as `token_ids`; a beam that found no caption is left out.
        """
        token_ids, scores = self.token_ids(image, **features)
        return [
            (self.text(row), float(score))
            for row, score in zip(token_ids, scores, strict=True)
            if np.isfinite(score)
        ]

    def text(self, token_ids) -> str:
        """The words of a row of token ids, up to the end token and without special tokens.

        Raises:
            InputError: the file was exported without a vocabulary, or does not fit it.
        """
        special = self.metadata["special_ids"]
        words = []
        for token in map(int, token_ids):
            if token == special["end"]:
                break
            if token >= len(self.vocabulary):
                raise InputError(
                    f"{self.path} gives token {token}, its {VOCABULARY} has {len(self.vocabulary)} lines:"
                    " export the run again"
                )
            if token not in special.values():
                words.append(self.vocabulary[token])
        return {"words": " "}[self.metadata["join"]].join(words)


def _text(archive: zipfile.ZipFile, name: str, path: Path) -> str:
    """A text file of the archive."""
    if archive.getinfo(name).file_size > _LARGEST_FILE:
        raise InputError(
            f"{name} in {path} is larger than {_LARGEST_FILE >> 20} MB: no bundle of this package is"
        )
    return archive.read(name).decode("utf-8")
