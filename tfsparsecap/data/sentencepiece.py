"""SentencePiece vocabularies: the models of published captioners, tokenised inside the TensorFlow graph."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import tensorflow as tf
import tensorflow_text as text

from tfsparsecap.data.tokenizers import SENTENCEPIECE, Tokenizer, join_words
from tfsparsecap.errors import InputError
from tfsparsecap.files import atomic_write

#: Bytes that a model may have; the largest published ones have a quarter of it.
LARGEST = 64 << 20

# Numbers in sentencepiece_model.proto: kinds of a piece, and the kind of model that splits at spaces only.
_NORMAL, _UNKNOWN, _CONTROL, _BYTE = 1, 2, 3, 6
_UNIGRAM, _WORD = 1, 3
# Fields of its trainer_spec that name the special pieces, and what they are called where it does not.
_SPECIAL = {45: "<unk>", 46: "<s>", 47: "</s>", 48: "<pad>"}
# Bytes of a protocol buffer's numbers of fixed length.
_SIZES = {1: 8, 5: 4}
_SPACE = "\u2581"
_REMEDY = "train it again with --pad_id=0 --unk_id=1 --bos_id=2 --eos_id=3, or give another model"


class SentencePieceTokenizer(Tokenizer):
    """The vocabulary in a SentencePiece model; ids are the model's own, the special ones too.

    Models of all types work. One of type `word` looks up what stands between spaces, so captions are prepared
    for it: split into words as `split_words` does, and, where none of its pieces holds one, apostrophes are
    left out and hyphens become spaces. That is what Karpathy's tokens look like, which published models were
    trained on (`a chef's t-shirt` is `a chefs t shirt`). Other types get captions as they were written and
    normalise them as they were trained to. Several unknown words in a row become a single unknown token: so
    does SentencePiece.

    Args:
        model: the bytes of a `.model` file.

    Raises:
        InputError: they are no SentencePiece model, or one without a piece for padding, for the beginning or
            for the end of a text, or one with a piece that `vocabulary.txt` cannot hold.

    Example:
        >>> tokenizer = SentencePieceTokenizer.load("sentencepiece.model")  # doctest: +SKIP
        >>> tokenizer.encode(tf.constant(["A man, riding"])).to_list()  # doctest: +SKIP
        [[2, 4, 12, 47, 3]]
        >>> tokenizer.decode([4, 12, 47, 3, 0])  # doctest: +SKIP
        'a man riding'
    """

    join = "pieces"

    def __init__(self, model: bytes):
        read = _read(model)
        self.model, self.vocabulary = model, read.pieces
        self.unknown_id = read.special("unknown", 45, _UNKNOWN)
        self.start_id = read.special("beginning", 46, _CONTROL)
        self.end_id = read.special("end", 47, _CONTROL)
        self.pad_id = read.special("padding", 48, _CONTROL)
        self._texts = [_text_of(piece, kind) for piece, kind in zip(read.pieces, read.kinds, strict=True)]
        self._splits_at_spaces = read.type == _WORD
        self._replaced = [
            (mark, instead)
            for mark, instead in (("'", ""), ("-", " "))
            if not any(mark in piece for piece in read.pieces)
        ]
        try:
            self._model = text.SentencepieceTokenizer(model=model, add_bos=True, add_eos=True)
        except tf.errors.OpError as error:
            reason = error.message.partition("[Op:")[0].rpartition("}} ")[2].strip()
            raise InputError(f"this is no SentencePiece model ({reason}): give a whole one") from error

    @classmethod
    def load(cls, path: str | os.PathLike) -> "SentencePieceTokenizer":
        """Reads a `.model` file. Raises InputError where it is absent or no model that can be used."""
        try:
            with open(path, "rb") as file:
                model = file.read(LARGEST + 1)
        except OSError as error:
            raise InputError(
                f"cannot read the SentencePiece model {path}: {error.strerror}; give its right path"
            ) from error
        try:
            return cls(model)
        except InputError as error:
            raise InputError(f"{path}: {error}") from error

    def save_to(self, folder: str | os.PathLike) -> None:
        # The model first: it alone makes a folder that can be read, a vocabulary of pieces alone does not.
        atomic_write(Path(folder) / SENTENCEPIECE, self.model)
        super().save_to(folder)

    def encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        return self._model.tokenize(self._prepared(texts))

    def _prepared(self, texts: tf.Tensor) -> tf.Tensor:
        if not self._splits_at_spaces:
            return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8")
        texts = join_words(texts)
        for mark, instead in self._replaced:
            texts = tf.strings.regex_replace(texts, mark, instead)
        return texts

    def decode(self, ids: Sequence[int] | np.ndarray | tf.Tensor) -> str:
        pieces = []
        for token in np.asarray(ids).reshape(-1).tolist():
            if token == self.end_id:
                break
            pieces.append(self._texts[token])
        return b"".join(pieces).decode("utf-8", "replace").strip(" ")


@dataclass
class _Model:
    """What a model file says of its pieces: their texts, their kinds, how the special ones are called."""

    type: int = _UNIGRAM
    pieces: list[str] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=lambda: dict(_SPECIAL))

    def special(self, use: str, name: int, kind: int) -> int:
        """The id of a special piece, found as SentencePiece finds it: by its name and its kind."""
        for token, (piece, its_kind) in enumerate(zip(self.pieces, self.kinds, strict=True)):
            if piece == self.names[name] and its_kind == kind:
                return token
        raise InputError(f"the SentencePiece model has no {use} token, which a captioner needs: {_REMEDY}")


def _text_of(piece: str, kind: int) -> bytes:
    """What a piece adds to a text."""
    if kind in (_UNKNOWN, _CONTROL):
        return b""
    return bytes([int(piece[3:5], 16)]) if kind == _BYTE else piece.replace(_SPACE, " ").encode()


def _read(content: bytes) -> _Model:
    """Looks into a model file (a protocol buffer) before the C++ library does, which trusts what it reads.

    Raises:
        InputError: it is no model.
    """
    if len(content) > LARGEST:
        raise InputError(f"this is larger than {LARGEST >> 20} MB, which no SentencePiece model is: give one")
    model = _Model()
    try:
        for number, value in _fields(memoryview(content)):
            if number == 1:
                piece = dict(_fields(value))
                model.pieces.append(str(piece[1], "utf-8"))
                model.kinds.append(piece.get(3, _NORMAL))
            elif number == 2:
                trainer = dict(_fields(value))
                model.type = trainer.get(3, model.type)
                names = {name: str(trainer[name], "utf-8") for name in _SPECIAL if name in trainer}
                model.names.update({name: piece for name, piece in names.items() if piece})
            elif number in (3, 5):
                _check_rules(dict(_fields(value)).get(2, b""))
        for piece, kind in zip(model.pieces, model.kinds, strict=True):
            _text_of(piece, kind)
    except (ValueError, KeyError, TypeError) as error:
        raise InputError("this is no SentencePiece model, or a damaged one: give a whole one") from error
    if not model.pieces:
        raise InputError("this is no SentencePiece model, it holds no pieces: give a .model file")
    broken = [token for token, piece in enumerate(model.pieces) if "\n" in piece or "\r" in piece]
    if broken:
        raise InputError(
            f"piece {broken[0]} of the SentencePiece model holds a line break, which a vocabulary of one "
            "piece a line cannot: train the model without it"
        )
    return model


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Numbers and values of a protocol buffer's fields. Raises ValueError where it is none."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        wire = key & 7
        if wire == 0:
            value, at = _varint(message, at)
        else:
            if wire == 2:
                size, at = _varint(message, at)
            elif wire in _SIZES:
                size = _SIZES[wire]
            else:
                raise ValueError("a field of a kind that no model has")
            value, at = message[at : at + size], at + size
            if at > len(message):
                raise ValueError("a field ends behind the end of its message")
        yield key >> 3, value


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """A number of variable length, and where it ends."""
    number = 0
    for shift, byte in enumerate(message[at : at + 10]):
        number |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return number, at + shift + 1
    raise ValueError("a number without an end")


def _check_rules(rules: memoryview | bytes) -> None:
    """Raises ValueError where normalisation rules would lead the C++ library out of its memory.

    They are a search tree and the texts that it leads to: the tree's size in bytes (uint32), its nodes
    (uint32 each, as Darts-clone packs them), the texts, each with a zero byte behind it. Bit 31 of a node
    says whether it is a leaf, whose other bits are then the place of a text. Of any other node, bits 10 to 30
    (shifted left by 8 where bit 9 is set), xored with its own place, are the place of its children: the leaf,
    if bit 8 says that it has one, and a block of 256 nodes, one for each byte that may follow.
    """
    if not len(rules):
        return
    size = int.from_bytes(rules[:4], "little")
    texts = bytes(rules[4 + size :])
    if not size or size % 4 or not texts.endswith(b"\0"):
        raise ValueError("normalisation rules without an end")
    nodes = np.frombuffer(rules, "<u4", size // 4, 4).astype(np.int64)
    here = np.flatnonzero(nodes >> 31 == 0)
    inner = nodes[here]
    children = here ^ ((inner >> 10) << ((inner >> 9 & 1) * 8))
    if not len(here) or (children | 0xFF).max() >= len(nodes):
        raise ValueError("normalisation rules with a node outside")
    leaves = nodes[children[inner >> 8 & 1 == 1]] & 0x7FFFFFFF
    if len(leaves) and leaves.max() >= len(texts):
        raise ValueError("normalisation rules with a text outside")
