r"""python -m benchmarks.paper_sizes: captioners with the papers' sizes and random weights.

Prints their parameters, and the megabytes of 2^20 bytes that these take in float32. For RTIC, the encoder is
included, as in the paper's Table 3.

examples:
  python -m benchmarks.paper_sizes
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
from rich.console import Console
from rich.table import Column, Table

from tfsparsecap.captioning.encoder_catalogue import CATALOGUE
from tfsparsecap.captioning.models.captioner_base import Captioner
from tfsparsecap.captioning.models.image_encoders.applications import MobileNetV1Encoder
from tfsparsecap.captioning.models.object_relation_transformer import ObjectRelationTransformer
from tfsparsecap.captioning.models.plain_transformer import Transformer
from tfsparsecap.captioning.models.soft_attention import SoftAttention
from tfsparsecap.captioning.models.up_down import UpDown
from tfsparsecap.command import parser, run

#: Vocabulary of the papers' captioners, regions of an image, and length of a feature.
VOCABULARY, REGIONS, FEATURE_SIZE = 10_000, 36, 2048
#: ACORT encodes a word of this vocabulary as two digits of base 768; there are three more tokens.
RADIX_BASE, DIGITS, NO_DIGITS = 768, 2, 3
#: RTIC: words that occur five times in Flickr8k's training captions, cells of ResNet-101's map of an image of
#: 256 pixels, and the depth of encoder and decoder that gives the size in the paper's Table 3.
FLICKR8K_VOCABULARY, CELLS, RTIC_LAYERS = 2540, 64, 6
#: The pruned RTIC of Table 3: 60 % of the width of the transformer encoder, half of the decoder layers, and a
#: share of ResNet-101's weights.
RTIC_PRUNED: dict[str, Any] = {"encoder_heads": 5, "encoder_hidden_size": 1232, "decoder_layers": 3}
RTIC_ENCODER = 0.82


@dataclass(frozen=True)
class PaperCaptioner:
    """A captioner and its inputs.

    Attributes:
        make: makes the captioner for a number of tokens per caption; keyword arguments override its sizes.
        inputs: name -> shape without the batch axis.
        tokens_a_word: number of tokens per word.
        vocabulary_size: number of tokens in the vocabulary.
    """

    make: Callable[..., Captioner]
    inputs: Mapping[str, tuple[int, ...]]
    tokens_a_word: int = 1
    vocabulary_size: int = VOCABULARY


def _soft_attention(length: int, **sizes: Any) -> Captioner:
    return SoftAttention(VOCABULARY, encoder=MobileNetV1Encoder(0.75, weights=None), **sizes)


def _soft_attention_of_map(length: int, **sizes: Any) -> Captioner:
    return SoftAttention(VOCABULARY, feature_size=768, **sizes)


def _up_down(length: int, **sizes: Any) -> Captioner:
    return UpDown(VOCABULARY, feature_size=FEATURE_SIZE, **sizes)


def _ort(length: int, **sizes: Any) -> Captioner:
    return ObjectRelationTransformer(VOCABULARY, max_length=length, feature_size=FEATURE_SIZE, **sizes)


def _acort(length: int, **sizes: Any) -> Captioner:
    shared = [0, 0, 0, 1, 1, 1]
    sharing: dict[str, Any] = {"share_encoder_layers": shared, "share_decoder_layers": shared}
    sharing |= {"share_encoder_attention": "kv", "share_decoder_attention": "kv"}
    tokens = RADIX_BASE + NO_DIGITS
    return ObjectRelationTransformer(
        tokens, max_length=length, feature_size=FEATURE_SIZE, **{**sharing, **sizes}
    )


def _rtic(length: int, **sizes: Any) -> Captioner:
    """Without its encoder, of features."""
    sizes = {"layers": RTIC_LAYERS, **sizes}
    return Transformer(FLICKR8K_VOCABULARY, max_length=length, feature_size=FEATURE_SIZE, **sizes)


_regions = {"features": (REGIONS, FEATURE_SIZE)}
_with_boxes = {**_regions, "boxes": (REGIONS, 4)}
#: Name in the benchmarks -> captioner. Soft-Attention uses the feature map of MobileNet-V1 0.75.
PAPER_CAPTIONERS = {
    "soft_attention": PaperCaptioner(_soft_attention, {"image": (224, 224, 3)}),
    "soft_attention_of_map": PaperCaptioner(_soft_attention_of_map, {"features": (49, 768)}),
    "up_down": PaperCaptioner(_up_down, _regions),
    "ort": PaperCaptioner(_ort, _with_boxes),
    "acort": PaperCaptioner(_acort, _with_boxes, DIGITS, RADIX_BASE + NO_DIGITS),
    "rtic": PaperCaptioner(_rtic, {"features": (CELLS, FEATURE_SIZE)}, vocabulary_size=FLICKR8K_VOCABULARY),
}


def megabytes(parameters: int) -> float:
    """Megabytes of 2^20 bytes of float32 weights."""
    return parameters * 4 / 2**20


def sizes(names: Iterable[str] = tuple(PAPER_CAPTIONERS)) -> list[tuple[str, int]]:
    """(captioner, parameters) of some of `PAPER_CAPTIONERS`."""
    rows = []
    for name in names:
        with keras.StatelessScope():  # shapes without values
            count = PAPER_CAPTIONERS[name].make(20).count_params()
        if name == "rtic":
            name, count = "rtic, unpruned, with ResNet-101", count + CATALOGUE["ResNet101"].parameters
        rows.append((name, count))
    return rows


def slimmed_rtic() -> tuple[str, int]:
    """The row of the pruned RTIC, whose size is that of the paper's Table 3."""
    from tfsparsecap.captioning.models.image_encoders.applications import ApplicationsEncoder
    from tfsparsecap.slimming.plan import slim_plan

    encoder = ApplicationsEncoder("ResNet101", image_size=256, weights=None)
    image = slim_plan(encoder.backbone, 1 - RTIC_ENCODER, budget="parameters").after.parameters
    with keras.StatelessScope():
        return "rtic, pruned, with ResNet-101", image + _rtic(20, **RTIC_PRUNED).count_params()


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the table."""
    parser(__doc__).parse_args(argv)
    table = Table("captioner", *(Column(name, justify="right") for name in ("parameters", "MB")))
    for name, count in (*sizes(), slimmed_rtic()):
        table.add_row(name, f"{count:,}", f"{megabytes(count):.1f}")
    Console().print(table)
    return 0


if __name__ == "__main__":
    run(main)
