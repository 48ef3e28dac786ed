"""SentencePiece models: the published one, hand-written ones, and files that are not models."""

import json
import struct

import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.captioning.data import sentencepiece
from tfsparsecap.captioning.data.sentencepiece import SentencePieceTokenizer
from tfsparsecap.errors import InputError

UNIGRAM, BPE, WORD, CHAR = 1, 2, 3, 4
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
# SentencePiece's default ids, and padding.
USUAL = [("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL), ("<pad>", CONTROL)]
NAMES = {45: "<unk>", 46: "<s>", 47: "</s>", 48: "<pad>"}


def number(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def part(field: int, content: bytes | str | int | float) -> bytes:
    """A field of a protocol buffer."""
    if isinstance(content, int):
        return number(field << 3) + number(content)
    if isinstance(content, float):
        return number(field << 3 | 5) + struct.pack("<f", content)
    content = content.encode() if isinstance(content, str) else content
    return number(field << 3 | 2) + number(len(content)) + content


def model(kind, pieces, special=USUAL, names=NAMES, rules=b"", byte_fallback=False) -> bytes:
    """A model file: `pieces` are texts, or texts with their kind, the likely ones first."""
    pieces = [*special, *((piece, NORMAL) if isinstance(piece, str) else piece for piece in pieces)]
    message = b"".join(
        part(1, part(1, piece) + part(2, float(-place)) + part(3, its_kind))
        for place, (piece, its_kind) in enumerate(pieces)
    )
    trainer = part(3, kind) + part(4, len(pieces)) + part(35, int(byte_fallback))
    trainer += b"".join(part(*name) for name in names.items())
    return message + part(2, trainer) + part(3, part(1, "rules") + (part(2, rules) if rules else b""))


UNIGRAM_PIECES = ["▁a", "▁dog", "▁do", "g", "s", "▁", "o"]


@pytest.fixture(scope="module")
def folder(fixtures):
    return fixtures / "updown_smp975"


# Loaded in each test, because TensorFlow drops a SentencePiece model when it gets a random seed.
@pytest.fixture
def published(folder):
    return SentencePieceTokenizer.load(folder / "sentencepiece_word.model")


@pytest.fixture(scope="module")
def expected(folder):
    return json.loads((folder / "expected.json").read_text(encoding="utf-8"))["computed"]


def test_the_published_vocabulary_is_read(published, folder):
    lines = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")[:-1]
    assert published.vocabulary == lines and len(published) == 3000
    special = published.pad_id, published.unknown_id, published.start_id, published.end_id
    assert special == (0, 1, 2, 3)
    assert published.join == "pieces" and published.words is published


def test_token_ids_are_decoded_to_the_captions_of_the_original(published, expected):
    beams = [beam for image in expected.values() for beam in image.values() if "caption" in beam]
    assert len(beams) == 20 and any(1 in beam["token_ids"] for beam in beams)
    for beam in beams:
        assert published.decode(beam["token_ids"]) == beam["caption"]
        assert published.decode([2, *beam["token_ids"], 3, 4, 4, 0]) == beam["caption"]


def test_captions_are_encoded_to_the_token_ids_of_the_original(published, expected):
    rows = [
        [2, *beam["token_ids"]] for image in expected.values() for beam in image.values() if "caption" in beam
    ]
    rows += [image["teacher_forced_input_ids"] for image in expected.values()]
    # "zebrafish" is not in the vocabulary; it replaces the unknown tokens of the original captioner.
    texts = [" ".join("zebrafish" if id == 1 else published.decode([id]) for id in row[1:]) for row in rows]
    assert published.encode(tf.constant(texts)).to_list() == rows
    tokens, targets = published.encode_padded(tf.constant(texts), 16)
    for row, inputs, outputs in zip(rows, tokens.numpy().tolist(), targets.numpy().tolist(), strict=True):
        assert inputs == (row[:-1] + [0] * 16)[:16]
        assert outputs == (row[1:] + [0] * 16)[:16]


def test_published_captions_are_decoded_unchanged(published, folder):
    captions = [
        entry["caption"]
        for entry in json.loads((folder / "published_test_captions.json").read_text(encoding="utf-8"))
    ]
    ids = published.encode(tf.constant(captions)).to_list()
    assert len(ids) == 5000
    assert [row.count(1) for row in ids] == [caption.count("<unk>") for caption in captions]
    expected_texts = [" ".join(caption.replace("<unk>", " ").split()) for caption in captions]
    assert [published.decode(row) for row in ids] == expected_texts


def test_raw_captions_become_karpathys_tokens(published, fixtures):
    data = json.loads((fixtures / "coco_bottom_up" / "dataset_coco.json").read_text())
    sentences = [sentence for image in data["images"] for sentence in image["sentences"]]
    assert any("-" in sentence["raw"] for sentence in sentences)
    assert any("'" in sentence["raw"] for sentence in sentences)
    ids = {piece: token for token, piece in enumerate(published.vocabulary)}
    expected_ids = []
    for sentence in sentences:
        row = [ids.get("▁" + word, 1) for word in sentence["tokens"]]
        # SentencePiece merges consecutive unknown words into one.
        row = [id for place, id in enumerate(row) if row[place - 1 : place] != [1] or id != 1]
        expected_ids.append([2, *row, 3])
    raw = [sentence["raw"] for sentence in sentences]
    assert published.encode(tf.constant(raw)).to_list() == expected_ids
    joined = [" ".join(sentence["tokens"]) for sentence in sentences]
    assert published.encode(tf.constant(joined)).to_list() == expected_ids


def test_unknown_and_empty_captions(published):
    texts = tf.constant(["", " .!", "zebrafish", b"a \xff dog", "▁"])
    assert published.encode(texts).to_list()[:3] == [[2, 3], [2, 3], [2, 1, 3]]
    for max_length, inputs, outputs in [(1, [[2], [2]], [[3], [1]]), (2, [[2, 0], [2, 1]], [[3, 0], [1, 3]])]:
        tokens, targets = published.encode_padded(tf.constant(["", "zebrafish"]), max_length)
        assert tokens.numpy().tolist() == inputs and targets.numpy().tolist() == outputs
    assert published.decode([]) == published.decode([3, 4]) == published.decode([1, 0, 2]) == ""


@pytest.mark.slow
def test_encoding_works_in_a_graph_and_in_tf_data(published):
    texts = tf.constant(["A man.", "a dog on the street"])
    expected_ids = published.encode_padded(texts, 5)[1].numpy().tolist()
    assert tf.function(published.encode_padded)(texts, 5)[1].numpy().tolist() == expected_ids
    dataset = tf.data.Dataset.from_tensors(texts).map(lambda batch: published.encode_padded(batch, 5))
    assert next(iter(dataset))[1].numpy().tolist() == expected_ids


def test_save_to_writes_the_model_unchanged(published, folder, tmp_path):
    published.save_to(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["sentencepiece.model", "vocabulary.txt"]
    model_file = folder / "sentencepiece_word.model"
    assert (tmp_path / "sentencepiece.model").read_bytes() == model_file.read_bytes()
    assert (tmp_path / "vocabulary.txt").read_bytes() == (folder / "vocab.txt").read_bytes()


def test_a_unigram_model_with_other_ids():
    tokenizer = SentencePieceTokenizer(model(UNIGRAM, UNIGRAM_PIECES))
    special = tokenizer.unknown_id, tokenizer.start_id, tokenizer.end_id, tokenizer.pad_id
    assert special == (0, 1, 2, 3)
    texts = tf.constant(["a dog", "dogs a", "a Dog", ""])
    # "▁dog" is likelier than "▁do" and "g"; this model has no capital letters.
    expected_ids = [[1, 4, 5, 2], [1, 5, 8, 4, 2], [1, 4, 9, 0, 10, 7, 2], [1, 2]]
    assert tokenizer.encode(texts).to_list() == expected_ids
    assert [tokenizer.decode(ids) for ids in expected_ids] == ["a dog", "dogs a", "a og", ""]
    tokens, targets = tokenizer.encode_padded(texts, 4)
    assert tokens.numpy().tolist() == [[1, 4, 5, 3], [1, 5, 8, 4], [1, 4, 9, 0], [1, 3, 3, 3]]
    assert targets.numpy().tolist() == [[4, 5, 2, 3], [5, 8, 4, 2], [4, 9, 0, 10], [2, 3, 3, 3]]


def test_a_bpe_model_with_byte_fallback():
    single = [(f"<0x{byte:02X}>", BYTE) for byte in range(256)]
    pieces = ["▁d", "▁do", "▁dog", "▁", "d", "o", "g"]
    tokenizer = SentencePieceTokenizer(model(BPE, [*single, *pieces], byte_fallback=True))
    (ids,) = tokenizer.encode(tf.constant(["dog é"])).to_list()
    assert ids == [1, 4 + 256 + 2, 4 + 256 + 3, 4 + 0xC3, 4 + 0xA9, 2]
    assert tokenizer.decode(ids) == "dog é"
    assert tokenizer.decode(ids[:-2]) == "dog \ufffd", "half a letter"


def test_special_pieces_are_found_by_their_names_in_the_model():
    special = [("[PAD]", CONTROL), ("</s>", CONTROL), ("[MASK]", CONTROL), ("?", UNKNOWN), ("go", CONTROL)]
    names = {45: "?", 46: "go", 48: "[PAD]"}
    tokenizer = SentencePieceTokenizer(model(WORD, ["▁a", "▁dog"], special, names))
    assert (tokenizer.pad_id, tokenizer.end_id, tokenizer.unknown_id, tokenizer.start_id) == (0, 1, 3, 4)
    assert tokenizer.encode(tf.constant(["a dog", "a cat"])).to_list() == [[4, 5, 6, 1], [4, 5, 3, 1]]
    assert tokenizer.decode([5, 2, 3, 0, 4, 6, 1, 5]) == "a dog"


def test_apostrophes_and_hyphens_are_kept_if_the_model_has_them():
    texts = tf.constant(["A chef's T-shirt"])
    pieces = ["▁a", "▁chefs", "▁t", "▁shirt"]
    assert SentencePieceTokenizer(model(WORD, pieces)).encode(texts).to_list() == [[1, 4, 5, 6, 7, 2]]
    pieces = ["▁a", "▁chef's", "▁t-shirt"]
    assert SentencePieceTokenizer(model(WORD, pieces)).encode(texts).to_list() == [[1, 4, 5, 6, 2]]


@pytest.mark.parametrize(
    ("missing_piece", "use"), [("<unk>", "unknown"), ("<s>", "start"), ("</s>", "end"), ("<pad>", "padding")]
)
def test_a_model_without_a_special_piece_is_rejected(missing_piece, use):
    special = [(piece, kind) for piece, kind in USUAL if piece != missing_piece]
    with pytest.raises(InputError, match=f"no {use} token.*train it again with --pad_id=0"):
        SentencePieceTokenizer(model(UNIGRAM, UNIGRAM_PIECES, special))
    # An ordinary piece with the same text is not a special piece.
    with pytest.raises(InputError, match=f"no {use} token"):
        SentencePieceTokenizer(model(UNIGRAM, [*UNIGRAM_PIECES, missing_piece], special))


def node(offset: int, label: int = 0, leaf: bool = False) -> int:
    return offset << 10 | leaf << 8 | label


def rules(nodes: dict[int, int], texts: bytes, size: int = 256) -> bytes:
    """Normalisation rules with these nodes, the others without children."""
    array = np.zeros(size, "<u4")
    for place, value in nodes.items():
        array[place] = value
    return struct.pack("<I", 4 * size) + array.tobytes() + texts


def test_normalisation_rules_are_applied():
    # From the root 0 the letter Q leads to node 0 ^ 81, whose leaf 81 ^ 1 = 80 points to the text at 1.
    written = rules({0: node(0), 81: node(1, 81, leaf=True), 80: 1 << 31 | 1}, b"\0a dog\0")
    tokenizer = SentencePieceTokenizer(model(UNIGRAM, UNIGRAM_PIECES, rules=written))
    assert tokenizer.encode(tf.constant(["Q"])).to_list() == [[1, 4, 5, 2]]


@pytest.mark.parametrize(
    "written",
    [
        rules({0: node(1 << 20)}, b"\0"),
        rules({81: node(1 << 8, 81)}, b"\0"),
        rules({81: node(1, 81, leaf=True), 80: 1 << 31 | 100}, b"\0a dog\0"),
        rules({}, b"no end"),
        rules({}, b""),
        rules({}, b"\0", size=0),
        rules({}, b"\0", size=255),
        rules({}, b"\0")[:-2],
        b"\1",
    ],
)
def test_invalid_normalisation_rules_are_rejected(written):
    with pytest.raises(InputError, match="damaged"):
        SentencePieceTokenizer(model(UNIGRAM, UNIGRAM_PIECES, rules=written))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"no model at all, but a text",
        b"\n\x00",
        b"\xff" * 100,
        part(1, 7),
        part(1, part(1, 7)),
        part(1, part(1, b"\xff")),
        part(2, part(3, UNIGRAM)),
        model(UNIGRAM, UNIGRAM_PIECES)[:-3],
        model(UNIGRAM, UNIGRAM_PIECES) + b"\x0b",
        model(UNIGRAM, [("<0xZZ>", BYTE)]),
        model(UNIGRAM, ["▁a", "▁a"]),
        model(BPE, [("<0x00>", BYTE)]),
    ],
)
def test_other_files_are_rejected(tmp_path, content):
    path = tmp_path / "words.model"
    path.write_bytes(content)
    with pytest.raises(InputError, match="not a SentencePiece model") as caught:
        SentencePieceTokenizer.load(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_unusable_models_are_rejected(tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"nowhere.model: No such file"):
        SentencePieceTokenizer.load(tmp_path / "nowhere.model")
    for piece in ("a\nb", "\r"):
        with pytest.raises(InputError, match=r"piece 5 .* line break"):
            SentencePieceTokenizer(model(UNIGRAM, ["▁a", (piece, USER_DEFINED)]))
    monkeypatch.setattr(sentencepiece, "LARGEST", 100)
    (tmp_path / "large.model").write_bytes(bytes(101))
    with pytest.raises(InputError, match=r"large.model: .* larger than"):
        SentencePieceTokenizer.load(tmp_path / "large.model")
