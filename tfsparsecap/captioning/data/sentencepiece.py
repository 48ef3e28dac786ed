"""SentencePiece vocabularies, which published captioners use, tokenised in the TensorFlow graph."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_text as text
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from google.protobuf.message import DecodeError

from tfsparsecap.captioning.data.tokenizers import SENTENCEPIECE, Tokenizer, join_words
from tfsparsecap.core.files import atomic_write, read_bytes
from tfsparsecap.errors import InputError, error_prefix

#: Largest size of a model in bytes, four times the largest published ones.
LARGEST = 64 << 20

# Kinds of a piece, and the type of models that split at spaces only.
_UNKNOWN, _CONTROL, _BYTE, _WORD = 2, 3, 6, 3
# The fields of sentencepiece_model.proto that are read here.
_SCHEMA = """
name: "tfsparsecap_sentencepiece.proto" package: "tfsparsecap" syntax: "proto2"
message_type {
  name: "Model"
  field { name: "pieces" number: 1 label: LABEL_REPEATED type: TYPE_MESSAGE type_name: "Piece" }
  field { name: "trainer" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: "Trainer" }
  field { name: "normalizer" number: 3 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: "Normalizer" }
  field { name: "denormalizer" number: 5 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: "Normalizer" }
}
message_type {
  name: "Piece"
  field { name: "piece" number: 1 label: LABEL_OPTIONAL type: TYPE_BYTES }
  field { name: "kind" number: 3 label: LABEL_OPTIONAL type: TYPE_INT32 default_value: "1" }
}
message_type {
  name: "Trainer"
  field { name: "type" number: 3 label: LABEL_OPTIONAL type: TYPE_INT32 default_value: "1" }
  field { name: "unknown" number: 45 label: LABEL_OPTIONAL type: TYPE_BYTES default_value: "<unk>" }
  field { name: "start" number: 46 label: LABEL_OPTIONAL type: TYPE_BYTES default_value: "<s>" }
  field { name: "end" number: 47 label: LABEL_OPTIONAL type: TYPE_BYTES default_value: "</s>" }
  field { name: "padding" number: 48 label: LABEL_OPTIONAL type: TYPE_BYTES default_value: "<pad>" }
}
message_type {
  name: "Normalizer"
  field { name: "rules" number: 2 label: LABEL_OPTIONAL type: TYPE_BYTES }
}
"""
_POOL = descriptor_pool.DescriptorPool()
_POOL.Add(text_format.Parse(_SCHEMA, descriptor_pb2.FileDescriptorProto()))
_Model = message_factory.GetMessageClass(_POOL.FindMessageTypeByName("tfsparsecap.Model"))
_SPACE = "\u2581"
_REMEDY = "train it again with --pad_id=0 --unk_id=1 --bos_id=2 --eos_id=3, or use another model"


class SentencePieceTokenizer(Tokenizer):
    """The vocabulary in a SentencePiece model; all ids, including the special ones, are those of the model.

    All types of models work. For a model of type `word` captions are split by `split_words`; apostrophes are
    removed and hyphens become spaces unless some piece has one, as in Karpathy's tokens, on which published
    models were trained (`a chef's t-shirt` is `a chefs t shirt`). Models of other types get raw captions and
    normalise them themselves. SentencePiece merges several unknown words in a row into one token.

    Args:
        model: the bytes of a `.model` file.

    Raises:
        InputError: they are not a SentencePiece model, it has no padding, start, end or unknown token, or a
            piece has a line break.

    Examples:
        >>> tokenizer = SentencePieceTokenizer.load("sentencepiece.model")  # doctest: +SKIP
        >>> tokenizer.encode(tf.constant(["A man, riding"])).to_list()  # doctest: +SKIP
        [[2, 4, 12, 47, 3]]
        >>> tokenizer.decode([4, 12, 47, 3, 0])  # doctest: +SKIP
        'a man riding'
    """

    join = "pieces"

    def __init__(self, model: bytes):
        self.model = model
        content, self.vocabulary, self._texts = _read(model)
        self.unknown_id = _special(content, "unknown", _UNKNOWN)
        self.start_id = _special(content, "start", _CONTROL)
        self.end_id = _special(content, "end", _CONTROL)
        self.pad_id = _special(content, "padding", _CONTROL)
        self._splits_at_spaces = content.trainer.type == _WORD
        self._replaced = [
            (mark, instead)
            for mark, instead in (("'", ""), ("-", " "))
            if not any(mark in piece for piece in self.vocabulary)
        ]
        try:
            self._model = text.SentencepieceTokenizer(model=model, add_bos=True, add_eos=True)
        except tf.errors.OpError as error:
            reason = error.message.partition("[Op:")[0].rpartition("}} ")[2].strip()
            raise InputError(f"it is not a SentencePiece model ({reason}): use a complete one") from error

    @classmethod
    def load(cls, path: str | os.PathLike) -> "SentencePieceTokenizer":
        """Reads a `.model` file. Raises InputError if it is missing or not usable."""
        model = read_bytes(path, "check the path", LARGEST)
        with error_prefix(path):
            return cls(model)

    def save_to(self, folder: str | os.PathLike) -> None:
        # The model first: a folder with only the vocabulary would be read as a word vocabulary.
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


def _text_of(piece: str, kind: int) -> bytes:
    """The text that a piece adds to a caption."""
    if kind in (_UNKNOWN, _CONTROL):
        return b""
    return bytes([int(piece[3:5], 16)]) if kind == _BYTE else piece.replace(_SPACE, " ").encode()


def _read(content: bytes) -> tuple[Any, list[str], list[bytes]]:
    """Reads and checks a model file before the C++ library does, which does not check.

    Returns:
        The model, its pieces, and the text of each piece.

    Raises:
        InputError: it is not a model.
    """
    try:
        model = _Model.FromString(content)
        pieces = [str(piece.piece, "utf-8") for piece in model.pieces]
        for normalizer in (model.normalizer, model.denormalizer):
            _check_rules(normalizer.rules)
        texts = [_text_of(name, piece.kind) for name, piece in zip(pieces, model.pieces, strict=True)]
        if not all(pieces):
            raise ValueError("empty piece")
    except (DecodeError, ValueError) as error:
        raise InputError("it is not a SentencePiece model, or a damaged one: use a complete one") from error
    if not pieces:
        raise InputError("it is not a SentencePiece model because it has no pieces: use a .model file")
    for token, piece in enumerate(pieces):
        if "\n" in piece or "\r" in piece:
            raise InputError(
                f"piece {token} of the SentencePiece model has a line break, but vocabulary.txt has one piece"
                " per line: train the model without it"
            )
    return model, pieces, texts


def _special(model: Any, use: str, kind: int) -> int:
    """The id of a special piece, found by its name and kind, as SentencePiece does."""
    # An empty name means the default.
    name = getattr(model.trainer, use) or getattr(type(model.trainer)(), use)
    for token, piece in enumerate(model.pieces):
        if piece.piece == name and piece.kind == kind:
            return token
    raise InputError(f"the SentencePiece model has no {use} token, which a captioner requires: {_REMEDY}")


def _check_rules(rules: bytes) -> None:
    """Raises ValueError for normalisation rules that would make the C++ library read outside its memory.

    Rules are a search tree and the replacement texts: the tree's size in bytes (uint32), its nodes (uint32
    each, in the format of Darts-clone), the texts, each terminated by a zero byte. If bit 31 of a node is
    set, it is a leaf, and its other bits are the offset of a text. Otherwise bits 10 to 30 (shifted left by 8
    if bit 9 is set), xored with the node's index, are the index of its children: the leaf, if bit 8 is set,
    and a block of 256 nodes, one for each next byte.
    """
    if not len(rules):
        return
    size = int.from_bytes(rules[:4], "little")
    texts = bytes(rules[4 + size :])
    if not size or size % 4 or not texts.endswith(b"\0"):
        raise ValueError("truncated normalisation rules")
    nodes = np.frombuffer(rules, "<u4", size // 4, 4).astype(np.int64)
    here = np.flatnonzero(nodes >> 31 == 0)
    inner = nodes[here]
    children = here ^ ((inner >> 10) << ((inner >> 9 & 1) * 8))
    if not len(here) or (children | 0xFF).max() >= len(nodes):
        raise ValueError("normalisation rules with an invalid node")
    leaves = nodes[children[inner >> 8 & 1 == 1]] & 0x7FFFFFFF
    if len(leaves) and leaves.max() >= len(texts):
        raise ValueError("normalisation rules with an invalid text")
