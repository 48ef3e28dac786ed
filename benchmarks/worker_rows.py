"""What `benchmarks.workers` trains: captioners, pruning methods and kinds of training, of tiny size."""

import itertools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

# Two steps per epoch. A larger epsilon, because Adam's first steps would otherwise amplify rounding errors of
# tiny gradients.
_TINY = (
    "data.train=20",
    "data.validation=3",
    "data.test=0",
    "data.image_size=32",
    "data.max_length=3",
    "model.encoder.image_size=32",
    "model.encoder.layer=conv_pw_1_relu",
    "model.encoder.trainable=false",
    "pruning=null",
    "training.epochs=2",
    "training.batch_size=50",
    "training.learning_rate=0.01",
    "training.adam_epsilon=1e-3",
    "training.warmup_steps=0",
    "training.validation_images=0",
)
_SOFT = ("model.embedding_size=16", "model.rnn_size=32", "model.attention_size=16")
_UP_DOWN = ("model.kind=up_down", *_SOFT, "model.dropout=0")
_LAYERS = ("model.size=16", "model.hidden_size=32", "model.layers=1", "model.heads=2")
_LAYERS = (*_LAYERS, "model.dropout=0", "model.feature_dropout=0")
_TRANSFORMER = ("model.kind=transformer", *_LAYERS)
_ORT = ("model.kind=object_relation_transformer", *_LAYERS)
_ACORT = (
    *_ORT,
    "data.radix_base=8",
    "data.max_length=5",
    "model.share_encoder_layers=[0]",
    "model.share_decoder_layers=[0]",
    "model.share_encoder_attention=kv",
    "model.share_decoder_attention=kv",
)
_BY_LOSS = ("pruning.metric=loss", "pruning.lower_bound=100", "pruning.pruning_percentage=0.4")
_FINE_TUNE = ("training.fine_tune.epochs=2", "training.fine_tune.learning_rate=0.001")
_SCST = ("training.scst.epochs=2", "training.scst.batch_size=10", "training.scst.samples=3")

#: Soft-Attention as in configs/flickr8k_soft_attention_lstm.yaml, without dropout.
_WORDS, _CAPTIONS, _IMAGES = 2536, 13, 64
_FULL_SIZE = (
    "data.kind=table",
    "data.fractions=[1,0,0]",
    "data.max_length=20",
    "model.cell=lstm",
    "model.embedding_size=256",
    "model.rnn_size=512",
    "model.attention_size=256",
    "model.encoder.width=0.75",
    "model.encoder.layer=conv_pw_13_relu",
    "model.encoder.image_size=224",
    "model.encoder.trainable=false",
    "training.epochs=3",
    "training.batch_size=128",
    "training.learning_rate=0.002",
    "training.adam_epsilon=1e-3",
    "training.warmup_steps=0",
    "training.clip_norm=5.0",
    "training.validation_images=0",
)


@dataclass(frozen=True)
class Row:
    """A training.

    Attributes:
        name: in the table.
        settings: `key=value` settings, besides those of all rows; `{NEEDED}` is the run folder of `needs`.
        needs: name of the row whose run it starts from or learns from; empty if none.
        samples: captions are sampled, differently on two devices and on one.
        full_size: has the sizes of a paper, not the tiny ones.
    """

    name: str
    settings: tuple[str, ...] = ()
    needs: str = ""
    samples: bool = False
    full_size: bool = False

    @property
    def run(self) -> str:
        """Name of the run."""
        return "".join(letter if letter.isalnum() else "_" for letter in self.name)

    def all_settings(self, folder: Path, runs: Path) -> list[str]:
        """The settings of the run, with data in `folder`; `runs` is the folder of the runs that it needs."""
        needed = str(runs / Row(self.needs).run)
        own = [setting.replace("{NEEDED}", needed) for setting in self.settings]
        data = "words" if self.full_size else "scenes"
        paths = [f"data.folder={folder / data}", f"data.cache_folder={folder / 'cache'}"]
        return [f"name={self.run}", *paths, *(_FULL_SIZE if self.full_size else _TINY), *own]


def _soft(name: str, *settings: str, needs: str = "", samples: bool = False) -> Row:
    return Row(name, (*_SOFT, *settings), needs, samples)


def _pruned(name: str, method: str, *settings: str, needs: str = "", sparsity: float = 0.7) -> Row:
    return _soft(name, f"pruning.method={method}", f"pruning.sparsity={sparsity}", *settings, needs=needs)


ROWS = (
    _soft("soft attention"),
    _soft("soft attention, GRU", "model.cell=gru", "model.value_size=12"),
    Row("up-down", _UP_DOWN),
    Row("transformer", (*_TRANSFORMER, "model.decoder_layers=2")),
    Row("ORT", _ORT),
    Row("ACORT", _ACORT),
    _pruned("supermask", "supermask"),
    _pruned("supermask, blocks of 4 x 1", "supermask", "pruning.block_shape=[4,1]"),
    _pruned("supermask_loss", "supermask_loss", "pruning.end=0.8"),
    _pruned("gradual", "gradual"),
    _pruned("magnitude", "magnitude", "pruning.begin=0.5"),
    _pruned("lottery", "lottery"),
    _soft("dense, initial weights kept", "training.keep_initial=true"),
    _pruned(
        "lottery, ticket of a run", "lottery", "pruning.rounds=0",
        "training.start_from={NEEDED}", needs="dense, initial weights kept",
    ),
    _pruned("snip", "snip", "pruning.batches=3"),
    _pruned("relevance", "relevance", *_BY_LOSS),
    _pruned("l1", "l1", *_BY_LOSS),
    _pruned("l2", "l2", *_BY_LOSS),
    _pruned("frozen", "frozen", "training.start_from={NEEDED}", needs="magnitude"),
    Row("supermask of ACORT", (*_ACORT, "pruning.method=supermask", "pruning.sparsity=0.7")),
    _soft("encoder trained", "model.encoder.trainable=true", "model.encoder.layer=conv_pw_3_relu"),
    _soft("encoder fine-tuned", *_FINE_TUNE),
    _soft(
        "encoder fine-tuned, frozen until conv_pw_1", *_FINE_TUNE,
        "model.encoder.layer=conv_pw_3_relu", "model.encoder.frozen_until=conv_pw_1_relu",
    ),
    *(
        _pruned(f"scheme {scheme}", "supermask", f"pruning.encoder={scheme}", *_FINE_TUNE)
        for scheme in "ABC"
    ),
    _soft("SCST", *_SCST, samples=True),
    _soft("SCST, greedy baseline", *_SCST, "training.scst.baseline=greedy", samples=True),
    Row("SCST of ACORT, pruned",
        (*_ACORT, *_SCST, "pruning.method=supermask", "pruning.sparsity=0.7"), samples=True),
    _soft("teacher: words", "training.teacher={NEEDED}", needs="transformer"),
    Row("teacher: hidden", (*_TRANSFORMER, "training.teacher={NEEDED}", "training.teacher_loss=hidden",
        "model.decoder_layers=1"), needs="transformer"),
    Row("teacher: proposed", (*_TRANSFORMER, "training.teacher={NEEDED}", "training.teacher_loss=proposed",
        "model.decoder_layers=2", "training.encoder_l2=0.01"), needs="transformer"),
    _soft("average_decay", "training.average_decay=0.9"),
    _pruned("average_decay, mixed_float16, supermask", "supermask", "training.average_decay=0.9",
            "training.precision=mixed_float16"),
    _soft("mixed_float16", "training.precision=mixed_float16"),
    _soft("mixed_bfloat16", "training.precision=mixed_bfloat16"),
    _soft(
        "clipped values, weight decay, label smoothing", "training.clip_norm=null",
        "training.clip_value=0.01", "training.weight_decay=0.1", "training.label_smoothing=0.1",
    ),
    _soft("several captions per image, views, lengths", "training.captions_per_image=5",
          "data.cached_views=3", "data.batch_lengths=[3]"),
    Row("full size, supermask", ("pruning.sparsity=0.95",), full_size=True),
    Row("full size, dense", ("pruning=null",), full_size=True),
)  # fmt: skip


def write_words(folder: Path) -> None:
    """Writes images and a table of captions with as many different words as Flickr8k's vocabulary.

    An existing folder is kept.
    """
    table = folder / "captions.csv"
    if table.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    random, words = np.random.default_rng(0), itertools.cycle(f"w{number}" for number in range(_WORDS))
    lines = ["image,caption"]
    for number in range(_IMAGES):
        name = f"{number}.jpg"
        Image.fromarray(random.integers(0, 256, (224, 224, 3), np.uint8)).save(folder / name)
        lines += [f"{name},{' '.join(itertools.islice(words, _CAPTIONS))}" for _ in range(4)]
    table.write_text("\n".join(lines) + "\n", encoding="utf-8")
