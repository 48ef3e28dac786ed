"""In how many images' references each n-gram stands: counted once, kept in a file."""

import hashlib
import json
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tfsparsecap.errors import InputError
from tfsparsecap.files import BROKEN_ARRAYS, atomic_path
from tfsparsecap.rewards.caption_words import Caption, CaptionWords
from tfsparsecap.rewards.ngrams import LIMIT, LONGEST, Captions, NgramTable

# Part of every digest: raise it when what is counted or the layout of the file changes.
_FORMAT = 1


class DocumentFrequencies:
    """Of each n-gram of one to four words, the number of images with a reference that holds it.

    Made by `from_references`, `load` or `cached_frequencies`.

    Attributes:
        images: how many images were counted.
        counts: int64 [n-grams], by number in `table`, from 1 to `images`.
        table: the n-grams.
        words: what ids of words mean in them.
        digest: of the references and of how they were read.

    Example:
        >>> frequencies = DocumentFrequencies.from_references([["a dog", "a red dog"], ["a cat"]])
        >>> frequencies.of("a"), frequencies.of("red dog"), frequencies.of("a bird")
        (2, 1, 0)
    """

    def __init__(self, images: int, counts: np.ndarray, table: NgramTable, words: CaptionWords, digest: str):
        self.images, self.counts, self.table = images, counts, table
        self.words, self.digest = words, digest

    @classmethod
    def from_references(
        cls, references: Sequence[Sequence[Caption]], words: CaptionWords | None = None
    ) -> "DocumentFrequencies":
        """Counts the n-grams of references.

        Args:
            references: an image's references for each image, all as texts or all as ids of words without
                start, end and padding.
            words: how to read them, see `CaptionWords`.

        Raises:
            InputError: there are no images, one of them has no reference, or they cannot be read.
        """
        return cls.from_captions(*read_references(references, words))

    @classmethod
    def from_captions(
        cls, captions: Captions, per_image: np.ndarray, words: CaptionWords
    ) -> "DocumentFrequencies":
        """Counts the n-grams of what `read_references` returned."""
        ngrams, table = NgramTable().number(captions)
        image_of = np.repeat(np.arange(len(per_image)), per_image)
        counts = np.zeros(table.size, np.int64)
        for owners, numbers in ngrams:
            # Sorting is several times faster here than np.unique, which hashes.
            held = np.sort(image_of[owners] << 32 | numbers)
            once = held[np.diff(held, prepend=-1) > 0]
            counts += np.bincount(once & (LIMIT - 1), minlength=table.size)
        return cls(len(per_image), counts, table, words, _digest(captions, per_image, words))

    def of(self, ngram: Caption) -> int:
        """The number of images for one n-gram, a text or ids of words; 0 where it is in none.

        Raises:
            InputError: it has no word or more than four.
        """
        captions = self.words.read([ngram])
        size = int(captions.lengths[0])
        if not 1 <= size <= LONGEST:
            raise InputError(f"{ngram!r} has {size} words: give one to {LONGEST}")
        number = int(self.table.number(captions)[0][size - 1].numbers[0])
        return int(self.counts[number]) if number < self.table.size else 0

    def save(self, path: str | os.PathLike) -> None:
        """Writes an `.npz` file, whole or not at all.

        Raises:
            InputError: the disk is full or the folder cannot be written to.
        """
        notes = {
            "format": _FORMAT,
            "images": self.images,
            "digest": self.digest,
            "vocabulary": self.words.vocabulary,
            "further": self.words.further,
            "unknown_id": self.words.unknown_id,
            "end_id": self.words.end_id,
        }
        (piece,) = self.table.pieces or ([np.zeros(0, np.int64)] * LONGEST,)
        with atomic_path(path) as temporary, temporary.open("wb") as file:
            np.savez(
                file,
                notes=np.frombuffer(json.dumps(notes).encode(), np.uint8),
                counts=self.counts,
                **{f"ngrams_{size}": pairs for size, pairs in enumerate(piece, 1)},
            )

    @classmethod
    def load(cls, path: str | os.PathLike) -> "DocumentFrequencies":
        """Reads what `save` wrote; nothing is unpickled, and nothing in the file is believed unchecked.

        Raises:
            InputError: the file is absent, damaged, of another kind or of another version.
        """
        try:
            notes, counts, piece = _arrays(path)
            if notes["format"] != _FORMAT:
                raise ValueError(f"its format is {notes['format']!r:.20}, this version reads {_FORMAT}")
            words = CaptionWords(notes["vocabulary"], unknown_id=notes["unknown_id"], end_id=notes["end_id"])
            if notes["further"] is not None:
                words = words.with_further(notes["further"])
            images, digest = notes["images"], notes["digest"]
            if not (isinstance(images, int) and isinstance(digest, str) and 1 <= images < LIMIT):
                raise ValueError(f"it says that it is of {images!r:.20} images")
            _check(piece, counts, images)
        except FileNotFoundError as error:
            raise InputError(f"there is no {path}: check the path") from error
        except BROKEN_ARRAYS as error:
            about = str(error) or type(error).__name__
            raise InputError(
                f"{path} holds no whole document frequencies ({about:.200}): remove it and make it again"
            ) from error
        return cls(images, counts, NgramTable((piece,)), words, digest)


def cached_frequencies(
    references: Sequence[Sequence[Caption]], folder: str | os.PathLike, words: CaptionWords | None = None
) -> DocumentFrequencies:
    """Frequencies of references: read from `folder` where they are there, else counted and kept there.

    The file's name is a digest of the references and of how they are read, so nothing stale is ever read,
    and those of several data sets and vocabularies live side by side. A damaged file is made again.

    Args:
        references, words: as of `DocumentFrequencies.from_references`.
        folder: made where absent.

    Raises:
        InputError: as `DocumentFrequencies.from_references`, or the file cannot be written.

    Example:
        >>> cached_frequencies([["a dog"], ["a red cat"]], "cache").of("a")
        2
    """
    captions, per_image, words = read_references(references, words)
    digest = _digest(captions, per_image, words)
    path = Path(folder) / f"frequencies-{digest[:24]}.npz"
    if path.exists():
        try:
            frequencies = DocumentFrequencies.load(path)
        except InputError:
            frequencies = None
        if frequencies is not None and frequencies.digest == digest:
            return frequencies
    frequencies = DocumentFrequencies.from_captions(captions, per_image, words)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder}: {error.strerror}; choose another") from error
    frequencies.save(path)
    return frequencies


def read_references(
    references: Sequence[Sequence[Caption]], words: CaptionWords | None = None
) -> tuple[Captions, np.ndarray, CaptionWords]:
    """References as ids of words: all in a row, how many each image has, and ids for all their words.

    Raises:
        InputError: there are no images, one of them has no reference, or they cannot be read.
    """
    references = list(references)
    if not references:
        raise InputError("there are no references: give those of one image at least")
    texts = [number for number, captions in enumerate(references) if isinstance(captions, str)]
    if texts:
        raise InputError(f"the references of image {texts[0]} are one text: give a list of captions")
    per_image = np.array([len(captions) for captions in references], np.int64)
    if not per_image.all():
        raise InputError(f"image {int(np.argmin(per_image))} has no reference: give it one or leave it out")
    captions, words = (words or CaptionWords()).read_references(
        [caption for captions in references for caption in captions]
    )
    return captions, per_image, words


def _digest(captions: Captions, per_image: np.ndarray, words: CaptionWords) -> str:
    key = [_FORMAT, words.vocabulary, words.further, words.unknown_id, words.end_id]
    digest = hashlib.sha256(json.dumps(key).encode())
    for array in (per_image, *captions):
        digest.update(len(array).to_bytes(8, "little") + array.astype("<i8").tobytes())
    return digest.hexdigest()


def _arrays(path: str | os.PathLike) -> tuple[dict, np.ndarray, tuple[np.ndarray, ...]]:
    """Notes, counts and n-grams as they are in the file."""
    with open(path, "rb") as file:
        with zipfile.ZipFile(file) as archive:
            # Compressed, a small file might fill the memory.
            if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
                raise ValueError("its arrays are compressed")
        file.seek(0)
        content = dict(np.load(file, allow_pickle=False))
    arrays = [content.pop(name) for name in ("counts", *(f"ngrams_{n}" for n in range(1, LONGEST + 1)))]
    for array in arrays:
        if array.dtype != np.int64 or array.ndim != 1:
            raise ValueError(f"it holds {array.dtype} {list(array.shape)}")
    notes = json.loads(content["notes"].tobytes())
    if not isinstance(notes, dict):
        raise ValueError("its notes are of another kind")
    return notes, arrays[0], tuple(arrays[1:])


def _check(piece: tuple[np.ndarray, ...], counts: np.ndarray, images: int) -> None:
    """Raises ValueError where these are no n-grams with their counts."""
    if len(counts) != sum(len(pairs) for pairs in piece) or len(counts) > LIMIT:
        raise ValueError(f"it counts {len(counts)} n-grams")
    if len(counts) and not 1 <= counts.min() <= counts.max() <= images:
        raise ValueError("an n-gram is in no image, or in more than there are")
    # An n-gram begins with one that is a word shorter; those of one word begin with nothing, written as 0.
    low, high, first = 0, 1, 0
    for pairs in piece:
        begun = pairs >> 32
        if (
            (np.diff(pairs) <= 0).any()
            or ((begun < low) | (begun >= high)).any()
            or ((pairs & (2**32 - 1)) >= LIMIT).any()
        ):
            raise ValueError("its n-grams are none")
        low, high = first, first + len(pairs)
        first = high
