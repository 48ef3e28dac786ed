"""python -m benchmarks.translation: relevance-based pruning of a transformer that translates, on Multi30k.

The paper on relevance-based pruning (https://arxiv.org/abs/2204.04977) prunes transformers for translation
and dialogue. Here, an encoder-decoder of keras_hub's layers (two and two layers of 128 units, 2.1 million
weights) translates 29,000 captions from German to English. It is pruned by `sc.prune` alone, without
anything of this project's captioners. Each method starts from the dense model and removes the same share of
the remaining weights at each of twelve validations, four per epoch, so that the zeros are complete after
three epochs; the other half of the training has fixed zeros. `magnitude` is iterative magnitude pruning:
relevance without weight decay. BLEU is that of sacrebleu, without case, on the 1,000 sentences of
test_2016_flickr, with greedy search.

FOLDER has train.de, train.en, val.de, val.en, test_2016_flickr.de and test_2016_flickr.en, unpacked from
data/task1/raw of https://github.com/multi30k/dataset. A dense model takes half an hour on one core, each
pruned one a quarter; models and results are kept in OUTPUT, and the same command continues.

examples:
  python -m benchmarks.translation multi30k runs/translation
  python -m benchmarks.translation multi30k runs/translation --methods relevance --seeds 1 2 3
"""

import argparse
import json
import statistics
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tfsparsecap.command import parser, run, start_tensorflow
from tfsparsecap.core.files import atomic_path, atomic_write, make_folder, read_text
from tfsparsecap.errors import InputError, check_number

#: Pieces of each language's vocabulary, tokens of a sentence, sentences of a batch.
PIECES, LENGTH, BATCH = 5000, 40, 64
#: Pairs up to each length, in tokens with start and end, are batched together.
BUCKETS = (14, 17, 20, 25)
SIZE, HIDDEN, HEADS, LAYERS, DROPOUT = 128, 512, 4, 2, 0.2
DENSE_EPOCHS, EPOCHS, VALIDATIONS = 12, 6, 4
#: Words of a batch, whose mean is the loss.
WORDS = 900
#: Weight decay (lambda) of each method with at most `FEW_ZEROS`, and with more. The first one of relevance
#: is the paper's for dialogue; with 75 % zeros, ten times as much changes nothing. The second ones have the
#: best BLEU on the validation split with 90 % zeros, of three or more values (docs/results/papers.md).
METHODS = {"relevance": (1e-5, 1e-3), "l1": (1e-6, 1e-4), "l2": (1e-5, 1e-3), "magnitude": (0.0, 0.0)}
FEW_ZEROS = 0.8
RESERVED = ("[PAD]", "[UNK]", "[START]", "[END]")


class Sentences:
    """Sentence pairs as ids, int32 [N, LENGTH + 1]: `train`, `val` and `test`, and the test split's texts.

    Raises:
        InputError: a file is missing, or the two files of a split differ in length.
    """

    def __init__(self, folder: Path) -> None:
        from keras_hub.tokenizers import WordPieceTokenizer, compute_word_piece_vocabulary
        from tensorflow.data import Dataset

        texts: dict[str, list[list[str]]] = {}
        for split in ("train", "val", "test_2016_flickr"):
            files = [folder / f"{split}.{language}" for language in ("de", "en")]
            texts[split] = [read_text(path).lower().strip().split("\n") for path in files]
            if len({len(lines) for lines in texts[split]}) > 1:
                raise InputError(f"{files[0]} and {files[1]} differ in length: download them again")
        self.references = texts["test_2016_flickr"][1]
        self.tokenizers = [
            WordPieceTokenizer(
                compute_word_piece_vocabulary(
                    Dataset.from_tensor_slices(lines), PIECES, reserved_tokens=list(RESERVED)
                )
            )
            for lines in texts["train"]
        ]
        self.train, self.val, self.test = (
            tuple(map(self._ids, self.tokenizers, texts[split])) for split in texts
        )

    @staticmethod
    def _ids(tokenizer: Any, lines: list[str]) -> np.ndarray:
        ids = np.zeros((len(lines), LENGTH + 1), np.int32)
        for row, pieces in zip(ids, tokenizer(lines), strict=True):
            row[: min(len(pieces), LENGTH - 1) + 2] = [2, *pieces[: LENGTH - 1], 3]
        return ids


def translator(pieces: Sequence[int]) -> Any:
    """An encoder-decoder with random weights: {"source", "target"} int32 [B, T] -> logits [B, T, pieces]."""
    import keras
    import keras_hub

    def embedded(name: str, number: int) -> tuple[Any, Any]:
        ids = keras.Input((None,), dtype="int32", name=name)
        table = keras_hub.layers.TokenAndPositionEmbedding(pieces[number], LENGTH + 1, SIZE, mask_zero=True)
        return ids, keras.layers.Dropout(DROPOUT)(table(ids))

    options = {"dropout": DROPOUT, "normalize_first": True}
    source, states = embedded("source", 0)
    for _ in range(LAYERS):
        states = keras_hub.layers.TransformerEncoder(HIDDEN, HEADS, **options)(states)
    target, words = embedded("target", 1)
    states = keras.layers.LayerNormalization()(states)
    for _ in range(LAYERS):
        words = keras_hub.layers.TransformerDecoder(HIDDEN, HEADS, **options)(words, states)
    logits = keras.layers.Dense(pieces[1], name="logits")(keras.layers.LayerNormalization()(words))
    return keras.Model({"source": source, "target": target}, logits, name="translator")


def fit(model: Any, sentences: Sentences, epochs: int, rate: float) -> None:
    """Trains with Adam and cosine decay, and validates `VALIDATIONS` times per epoch."""
    import keras
    import tensorflow as tf

    def masked(source: Any, target: Any) -> tuple[Any, Any, Any]:
        inputs, words = {"source": source, "target": target[:, :-1]}, target[:, 1:]
        return inputs, words, tf.cast(words > 0, tf.float32)

    def length(source: Any, target: Any) -> Any:
        return tf.reduce_max(tf.math.count_nonzero(tf.stack([source, target]), axis=1, dtype=tf.int32))

    def trimmed(source: Any, target: Any) -> tuple[Any, Any]:
        used = tf.reduce_max(tf.math.count_nonzero(tf.concat([source, target], 0), axis=1, dtype=tf.int32))
        return source[:, :used], target[:, :used]

    # Pairs of similar length share a batch, so that few steps compute padding.
    data = (
        tf.data.Dataset.from_tensor_slices(sentences.train)
        .shuffle(len(sentences.train[0]))
        .repeat()
        .bucket_by_sequence_length(length, BUCKETS, [BATCH] * (len(BUCKETS) + 1), drop_remainder=True)
        .map(trimmed)
    )
    validation = tf.data.Dataset.from_tensor_slices(sentences.val).batch(128).map(masked)
    interval = len(sentences.train[0]) // BATCH // VALIDATIONS
    steps = interval * VALIDATIONS * epochs
    decay = keras.optimizers.schedules.CosineDecay(0.0, steps, warmup_target=rate, warmup_steps=steps // 20)
    model.compile(
        keras.optimizers.Adam(decay, 0.9, 0.98, global_clipnorm=1.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="mean_with_sample_weight"),
        steps_per_execution=interval,
    )
    model.fit(
        data.map(masked).prefetch(2),
        epochs=epochs * VALIDATIONS,
        steps_per_epoch=interval,
        validation_data=validation,
        verbose=2,
    )


def weight_decay(method: str, sparsity: float) -> float:
    """The value of `METHODS` for a share of zeros; 0.0 for `"dense"`."""
    return METHODS[method][sparsity > FEW_ZEROS] if method in METHODS else 0.0


def pruned(path: Path, method: str, sparsity: float, sentences: Sentences) -> Any:
    """A copy of the dense model at `path` after pruning and fine-tuning, without gates."""
    import keras

    import tfsparsecap as sc

    kinds = {"l1": sc.L1Pruning, "l2": sc.L2Pruning}
    pruning = kinds.get(method, sc.Relevance)(
        sparsity,
        lower_bound=1e9,  # each validation removes weights
        metric="val_loss",
        weight_decay=weight_decay(method, sparsity),
        gradient_scale=WORDS,
        pruning_percentage=1.0 - (1.0 - sparsity) ** (1.0 / (EPOCHS * VALIDATIONS // 2)),
        finetune_validations=None,
    )
    model = sc.prune(keras.saving.load_model(path), pruning)
    fit(model, sentences, EPOCHS, 5e-4)
    return sc.strip_pruning(model)


def bleu(model: Any, sentences: Sentences) -> float:
    """sacrebleu's BLEU of greedy translations of the test split, in percent."""
    import sacrebleu
    import tensorflow as tf

    call = tf.function(lambda source, target: model({"source": source, "target": target}, training=False))
    texts = []
    for source in np.array_split(sentences.test[0], 10):
        words = np.zeros((len(source), LENGTH), np.int32)
        words[:, 0] = 2
        for place in range(LENGTH - 1):
            used = 8 * (place // 8 + 1)  # few shapes, and no words to come
            logits = call(source, words[:, :used])[:, place]
            best = np.where((words == 3).any(1), 0, np.argmax(logits, -1))
            words[:, place + 1] = best
            if (words == 3).any(1).all():
                break
        for row in words:
            pieces = [int(piece) for piece in row if piece > 3]
            texts.append(str(sentences.tokenizers[1].detokenize(pieces)))
    return float(sacrebleu.corpus_bleu(texts, [sentences.references], lowercase=True).score)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    options = parser(__doc__)
    options.add_argument("data", type=Path, metavar="FOLDER", help="folder with the sentences")
    options.add_argument("output", type=Path, metavar="OUTPUT", help="folder for models and results")
    options.add_argument(
        "--methods", nargs="+", choices=list(METHODS), default=list(METHODS), help="(default: all)"
    )
    options.add_argument(
        "--sparsities",
        nargs="+",
        type=float,
        default=[0.5, 0.75, 0.9],
        metavar="S",
        help="(default: 0.5 0.75 0.9)",
    )
    options.add_argument("--seeds", nargs="+", type=int, default=[1], metavar="N", help="(default: 1)")
    return options.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Trains what is missing, and prints the table.

    Raises:
        InputError: the data are missing.
    """
    options = _arguments(argv)
    for sparsity in options.sparsities:
        check_number("--sparsities", sparsity, above=0, below=1)
    start_tensorflow()
    import keras
    from rich.console import Console
    from tfsparsecap_export.tables import new_table

    from tfsparsecap.model_summary.nonzeros import weight_counts

    sentences = Sentences(options.data)
    make_folder(options.output)
    pieces = [tokenizer.vocabulary_size() for tokenizer in sentences.tokenizers]
    results = options.output / "results.jsonl"
    lines = read_text(results).splitlines() if results.exists() else []
    # Earlier results do not say the weight decay: those without one, as of dense models, are kept.
    rows = [{"weight_decay": 0.0, **json.loads(line)} for line in lines]
    for seed in options.seeds:
        dense = options.output / f"dense-{seed}.keras"
        trainings = [
            ("dense", 0.0),
            *((name, share) for share in options.sparsities for name in options.methods),
        ]
        for method, sparsity in trainings:
            decay = weight_decay(method, sparsity)
            key = {"method": method, "sparsity": sparsity, "seed": seed, "weight_decay": decay}
            if any(key.items() <= row.items() for row in rows):
                continue
            keras.utils.set_random_seed(seed)
            if method == "dense":
                model = translator(pieces)
                fit(model, sentences, DENSE_EPOCHS, 1e-3)
            else:
                model = pruned(dense, method, sparsity, sentences)
            path = dense if method == "dense" else dense.with_name(f"{method}-{sparsity:g}-{seed}.keras")
            with atomic_path(path) as temporary:
                model.save(temporary)
            reached = weight_counts(model)["sparsity"]
            rows.append({**key, "reached": reached, "bleu": bleu(model, sentences)})
            print(rows[-1], flush=True)
            atomic_write(results, "".join(json.dumps(row) + "\n" for row in rows))
    scores: dict[tuple[str, float], list[float]] = defaultdict(list)
    for row in rows:
        if row["weight_decay"] != weight_decay(row["method"], row["sparsity"]):
            continue  # of another `METHODS`
        scores[row["method"], row["sparsity"]].append(row["bleu"])
    shares = sorted({sparsity for _, sparsity in scores})
    table = new_table("BLEU by share of zeros", "method", *(f">{100 * share:g} %" for share in shares))
    for method in dict.fromkeys(method for method, _ in scores):
        columns = [scores.get((method, share), []) for share in shares]
        spreads = [f" ± {statistics.stdev(column):.1f}" if len(column) > 1 else "" for column in columns]
        cells = [
            f"{statistics.fmean(column):.1f}{spread}" if column else ""
            for column, spread in zip(columns, spreads, strict=True)
        ]
        table.add_row(method, *cells)
    Console().print(table)


if __name__ == "__main__":
    run(main)
