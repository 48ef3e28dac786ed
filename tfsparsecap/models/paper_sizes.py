"""Captioners at the papers' sizes with random weights: what benchmarks measure."""

from collections.abc import Callable
from dataclasses import dataclass

from tfsparsecap.models.captioner import Captioner
from tfsparsecap.models.encoders import MobileNetV1Encoder
from tfsparsecap.models.object_relation_transformer import ObjectRelationTransformer
from tfsparsecap.models.soft_attention import SoftAttention
from tfsparsecap.models.up_down import UpDown

#: Words that the papers' captioners know, regions of an image and length of their features.
VOCABULARY, REGIONS, FEATURE_SIZE = 10_000, 36, 2048
#: ACORT writes a word of such a vocabulary as two digits of base 768; three tokens are no digits.
RADIX_BASE, DIGITS, NO_DIGITS = 768, 2, 3


@dataclass(frozen=True)
class PaperCaptioner:
    """A captioner and what it takes.

    Attributes:
        make: the captioner for captions of so many tokens; keyword arguments of its class go on top.
        inputs: name -> shape without the axis of the batch.
        tokens_a_word: how many tokens stand for a word.
        vocabulary_size: how many different ones there are.
    """

    make: Callable[..., Captioner]
    inputs: dict[str, tuple[int, ...]]
    tokens_a_word: int = 1
    vocabulary_size: int = VOCABULARY


def _soft_attention(length: int, **sizes) -> Captioner:
    return SoftAttention(VOCABULARY, encoder=MobileNetV1Encoder(0.75, weights=None), **sizes)


def _soft_attention_of_map(length: int, **sizes) -> Captioner:
    return SoftAttention(VOCABULARY, feature_size=768, **sizes)


def _up_down(length: int, **sizes) -> Captioner:
    return UpDown(VOCABULARY, feature_size=FEATURE_SIZE, **sizes)


def _ort(length: int, **sizes) -> Captioner:
    return ObjectRelationTransformer(VOCABULARY, max_length=length, feature_size=FEATURE_SIZE, **sizes)


def _acort(length: int, **sizes) -> Captioner:
    shared = [0, 0, 0, 1, 1, 1]
    sharing = {"share_encoder_layers": shared, "share_decoder_layers": shared}
    sharing |= {"share_encoder_attention": "kv", "share_decoder_attention": "kv"}
    tokens = RADIX_BASE + NO_DIGITS
    return ObjectRelationTransformer(
        tokens, max_length=length, feature_size=FEATURE_SIZE, **{**sharing, **sizes}
    )


_regions = {"features": (REGIONS, FEATURE_SIZE)}
_with_boxes = {**_regions, "boxes": (REGIONS, 4)}
#: By the names that benchmarks know them by. Soft-Attention looks at the map of MobileNet-V1 0.75.
PAPER_CAPTIONERS = {
    "soft_attention": PaperCaptioner(_soft_attention, {"image": (224, 224, 3)}),
    "soft_attention_of_map": PaperCaptioner(_soft_attention_of_map, {"features": (49, 768)}),
    "up_down": PaperCaptioner(_up_down, _regions),
    "ort": PaperCaptioner(_ort, _with_boxes),
    "acort": PaperCaptioner(_acort, _with_boxes, DIGITS, RADIX_BASE + NO_DIGITS),
}
