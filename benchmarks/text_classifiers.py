"""python -m benchmarks.text_classifiers: pruned classifiers of texts, their F1 score, size and speed.

A transformer with 64 tokens (pre-norm, 3 layers of 256 units, 2.4 million weights and an embedding table),
one of BERT-tiny's size (2 layers of 128 units), or a bidirectional LSTM (2 x 256 units) reads the five
captions of a photograph of MS-COCO, and predicts which of the 80 kinds of objects people have labelled in it:
8,600 photographs for training, 1,200 for the test. The dense model is trained first; variants start from it
and are trained for as long again, with 0.7 times the learning rate, or from random weights. F1 counts all
objects of all test photographs, and each file is run on them. With several seeds, scores are mean and
standard deviation. A transformer takes about ten minutes per variant and seed, the others less than half.

variants:
  longer            the dense model, trained for as long again; dense int8, as the dense model itself
  blocks=S          zeros in (16, 1) blocks, a share S, by Supermask
  taught=S          the same, taught by the dense model: texts without a tenth of their words, and the mean of
                    its probabilities and the labels; twice as many epochs
  scratch=S         the same from random weights, trained as long as the dense model
  floor0=S          like scratch, with minimum_density=0
  faster=F,S        as many channels removed and then S zeros as make the file F times faster than dense int8
                    (prune_to_latency)

examples:
  python -m benchmarks.text_classifiers coco_captions.jsonl.gz texts --variants scratch=0.9 faster=1.7,0.9
  python -m benchmarks.text_classifiers coco_captions.jsonl.gz texts --target x86_64
      files for this machine, and measured times
  python -m benchmarks.text_classifiers coco_captions.jsonl.gz texts --count
      also instructions of TFLite 2.16.1's arm64 library under qemu (tests/runtimes)
  python -m benchmarks.text_classifiers coco_captions.jsonl.gz texts --model lstm \\
      --variants scratch=0.97 floor0=0.97
"""

import argparse
import collections
import functools
import gzip
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tfsparsecap.command import parser, run, start_tensorflow
from tfsparsecap.core.files import make_folder
from tfsparsecap.errors import InputError

TOKENS, WORDS, TESTED, BATCH = 64, 4000, 1200, 64
_RATE = {"transformer": 1e-3, "bert-tiny": 2e-3, "lstm": 3e-3}


class Texts:
    """Captions as word ids, int32 [N, TOKENS], and labels, float32 [N, 80]: `train` and `test`."""

    def __init__(self, path: Path) -> None:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        rows = [row for row in rows if len(row["captions"]) >= 4 and row["labels"]]
        np.random.default_rng(0).shuffle(rows)
        words = [re.findall("[a-z]+", " ".join(row["captions"]).lower()) for row in rows]
        counts = collections.Counter(word for text in words[TESTED:] for word in text)
        ids = {word: number for number, (word, _) in enumerate(counts.most_common(WORDS - 2), 2)}
        names = sorted({label for row in rows for label in row["labels"]})
        tokens, labels = (
            np.zeros((len(rows), TOKENS), np.int32),
            np.zeros((len(rows), len(names)), np.float32),
        )
        for number, (row, text) in enumerate(zip(rows, words, strict=True)):
            word_ids = [ids.get(word, 1) for word in text[:TOKENS]]
            tokens[number, : len(word_ids)] = word_ids
            labels[number, [names.index(label) for label in row["labels"]]] = 1
        self.train, self.test = (
            (tokens[part], labels[part]) for part in (slice(TESTED, None), slice(0, TESTED))
        )


def transformer(classes: int, size: int = 256, layers: int = 3) -> Any:
    """Returns a pre-norm transformer with mean pooling, without weights of its own for positions."""
    import keras

    ids = keras.Input((TOKENS,), dtype="int32", name="ids")
    states = keras.layers.Dropout(0.3)(keras.layers.Embedding(WORDS, size)(ids))
    for _ in range(layers):
        normed = keras.layers.LayerNormalization()(states)
        states = states + keras.layers.MultiHeadAttention(4, size // 4)(normed, normed)
        hidden = keras.layers.Dense(4 * size, activation="relu")(keras.layers.LayerNormalization()(states))
        states = states + keras.layers.Dense(size)(keras.layers.Dropout(0.2)(hidden))
    pooled = keras.layers.GlobalAveragePooling1D()(keras.layers.LayerNormalization()(states))
    return keras.Model(ids, keras.layers.Dense(classes)(keras.layers.Dropout(0.3)(pooled)))


def lstm(classes: int) -> Any:
    """Returns a bidirectional LSTM whose states are averaged."""
    import keras

    layers = [
        keras.Input((TOKENS,), dtype="int32", name="ids"),
        keras.layers.Embedding(WORDS, 128),
        keras.layers.Dropout(0.3),
        keras.layers.Bidirectional(keras.layers.LSTM(256, return_sequences=True)),
        keras.layers.GlobalAveragePooling1D(),
        keras.layers.Dropout(0.3),
        keras.layers.Dense(classes),
    ]
    return keras.Sequential(layers)


def make(options: argparse.Namespace) -> Callable[[int], Any]:
    """Returns what makes a model for a number of classes, with random weights."""
    tiny = functools.partial(transformer, size=128, layers=2)
    return {"transformer": transformer, "bert-tiny": tiny, "lstm": lstm}[options.model]


def fit(model: Any, data: tuple[np.ndarray, np.ndarray], epochs: int, rate: float) -> None:
    """Trains with a binary cross-entropy, warm-up and cosine decay."""
    import keras

    tokens, labels = data
    steps = epochs * -(-len(tokens) // BATCH)
    decay = keras.optimizers.schedules.CosineDecay(1e-5, steps - 100, warmup_target=rate, warmup_steps=100)
    loss = keras.losses.BinaryCrossentropy(from_logits=True, reduction="sum_over_batch_size")
    model.compile(keras.optimizers.Adam(decay), loss)
    model.fit(tokens, labels, batch_size=BATCH, epochs=epochs, verbose=2)


def taught(teacher: Any, texts: Texts, epochs: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the training data of several epochs, with a teacher's targets."""
    tokens, labels = (np.concatenate([part] * epochs) for part in texts.train)
    dropped = np.random.default_rng(0).random(tokens.shape) < 0.1
    tokens = np.where(dropped & (tokens > 0), 1, tokens)
    probabilities = 1 / (1 + np.exp(-teacher.predict(tokens, batch_size=256, verbose=0)))
    return tokens, (labels + probabilities) / 2


def f1(path: Path, texts: Texts) -> float:
    """Returns the F1 score of a file's labels of the test texts; a label is one whose logit is positive."""
    from ai_edge_litert.interpreter import Interpreter

    model = Interpreter(str(path), num_threads=1).get_signature_runner()
    tokens, labels = texts.test
    predictions = np.concatenate([next(iter(model(ids=text[None]).values())) for text in tokens]) > 0
    return float(2 * (predictions * labels).sum() / (predictions.sum() + labels.sum()))


def variant(name: str, dense: Path, int8_ms: float, texts: Texts, options: argparse.Namespace) -> Any:
    """Returns the trained model of a variant; `int8_ms` is what the dense int8 file is expected to take."""
    import keras
    from tfsparsecap_export import prune_to_latency

    import tfsparsecap as sc

    kind, _, value = name.partition("=")
    from_random = kind in ("scratch", "floor0")
    model = make(options)(texts.train[1].shape[1]) if from_random else keras.saving.load_model(dense)
    data, epochs = texts.train, options.epochs * (2 if kind == "taught" else 1)
    steps = epochs * -(-len(texts.train[0]) // BATCH)
    if kind == "taught":
        data, epochs = taught(keras.saving.load_model(dense), texts, epochs), 1
    if kind in ("blocks", "taught", "scratch", "floor0"):
        floor = {"minimum_density": 0.0} if kind == "floor0" else {}
        sc.prune(model, sc.Supermask(float(value), total_steps=steps, block_shape=(16, 1), **floor))
    elif kind == "faster":
        factor, zeros = map(float, value.split(","))
        method = sc.Supermask(zeros, total_steps=steps, block_shape=(16, 1))
        samples = [texts.train[0][start : start + BATCH] for start in range(0, 8 * BATCH, BATCH)]
        model = prune_to_latency(model, int8_ms / factor, method, target=options.target, samples=samples)
    fit(model, data, epochs, (1.0 if from_random else 0.7) * _RATE[options.model])
    return model if kind == "longer" else sc.strip_pruning(model)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    command = parser(__doc__)
    command.add_argument("captions", type=Path, metavar="CAPTIONS.jsonl.gz", help="captions with labels")
    command.add_argument("folder", type=Path, metavar="FOLDER", help="folder for models and files")
    command.add_argument("--model", choices=list(_RATE), default="transformer", help="(default: transformer)")
    command.add_argument(
        "--variants", nargs="+", default=["scratch=0.9", "faster=1.7,0.9"], metavar="VARIANT"
    )
    command.add_argument("--epochs", type=int, default=4, metavar="N", help="of each training (default: 4)")
    command.add_argument("--seeds", type=int, nargs="+", default=[1], metavar="N", help="(default: 1)")
    command.add_argument("--target", default="arm64", help="processor of the files (default: arm64)")
    command.add_argument("--count", action="store_true", help="count instructions on arm64")
    options = command.parse_args(argv)
    for name in options.variants:
        if not re.fullmatch(r"longer|(blocks|taught|scratch|floor0)=0\.\d+|faster=\d+(\.\d+)?,0\.\d+", name):
            raise InputError(
                f"the variant {name} is unknown: give longer, blocks=S, taught=S, scratch=S, floor0=S or"
                " faster=F,S"
            )
    return options


def main(argv: Sequence[str] | None = None) -> None:
    """Runs the command with `argv`, the arguments of the process by default.

    Raises:
        InputError: an argument or the captions cannot be used.
    """
    options = _arguments(argv)
    if not options.captions.is_file():
        raise InputError(f"there is no file {options.captions}: give coco_captions.jsonl.gz")
    make_folder(options.folder)
    start_tensorflow()
    import keras
    from rich.console import Console
    from tfsparsecap_export import export_model
    from tfsparsecap_export.tables import new_table

    texts = Texts(options.captions)
    rows: dict[str, list[tuple[float, ...]]] = collections.defaultdict(list)
    for seed in options.seeds:
        dense = options.folder / f"{options.model}-{options.epochs}-{seed}.keras"
        if not dense.exists():
            keras.utils.set_random_seed(seed)
            model = make(options)(texts.train[1].shape[1])
            fit(model, texts.train, options.epochs, _RATE[options.model])
            model.save(dense)
        paths, int8_ms, results = [], 0.0, []
        for name in ("dense", *options.variants):
            is_for_target = f"-{options.target}" if name.startswith("faster") else ""
            trained = dense.with_name(f"{dense.stem}-{name.replace('=', '-')}{is_for_target}.keras")
            if name == "dense":
                trained = dense
            elif not trained.exists():
                keras.utils.set_random_seed(seed)
                variant(name, dense, int8_ms, texts, options).save(trained)
            path = dense.with_name(f"{dense.stem}-{name.replace('=', '-')}-{options.target}.tflite")
            format = "dense-int8" if name in ("dense", "longer") else "auto"
            report = export_model(keras.saving.load_model(trained), path, format, target=options.target)
            int8_ms = int8_ms or report.speedup.ms
            paths.append(path)
            results.append((100 * f1(path, texts), report.bytes / 1e6, int8_ms / report.speedup.ms))
            print(path, results[-1], flush=True)
        times = costs(paths, texts, options)
        for name, figures, time in zip(("dense", *options.variants), results, times, strict=True):
            rows[name].append((*figures, times[0] / time))
    title = f"{options.model}: {options.epochs} epochs, {len(options.seeds)} seed(s), {options.target}"
    headings = ">F1 %", ">MB", ">expected, x dense int8", ">measured, x dense int8"
    table = new_table(title, "variant", *headings)
    for name, figures in rows.items():
        scores, sizes, expected, measured = np.array(figures).T
        spread = f" ± {np.std(scores, ddof=1):.1f}" if len(scores) > 1 else ""
        speed = f"{np.mean(measured):.1f}x" if np.isfinite(measured).all() else ""
        cells = f"{np.mean(scores):.1f}{spread}", f"{np.mean(sizes):.2f}", f"{np.mean(expected):.1f}x", speed
        table.add_row(name, *cells)
    Console().print(table)


def costs(paths: list[Path], texts: Texts, options: argparse.Namespace) -> list[float]:
    """Milliseconds of files on this machine (x86_64), or millions of instructions (`--count`), else NaN."""
    samples = [{"ids": text[None]} for text in texts.test[0][:8]]
    if options.count:
        from tests.runtimes import tflite_2_16

        return [tflite_2_16.instructions(path, samples[0]) / 1e6 for path in paths]
    if options.target != "x86_64":
        return [float("nan")] * len(paths)
    from tfsparsecap_export import timing

    return [measurement.ms for measurement in timing.measure(paths, samples, runs=60, trust=True)]


if __name__ == "__main__":
    run(main)
