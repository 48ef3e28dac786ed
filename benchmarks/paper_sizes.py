"""Captioners with the papers' sizes and random weights."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tfsparsecap.models.captioner import Captioner
from tfsparsecap.models.encoders import MobileNetV1Encoder
from tfsparsecap.models.object_relation_transformer import ObjectRelationTransformer
from tfsparsecap.models.soft_attention import SoftAttention
from tfsparsecap.models.up_down import UpDown

#: Vocabulary of the papers' captioners, regions of an image, and length of a feature.
VOCABULARY, REGIONS, FEATURE_SIZE = 10_000, 36, 2048
#: ACORT encodes a word of this vocabulary as two digits of base 768; there are three more tokens.
RADIX_BASE, DIGITS, NO_DIGITS = 768, 2, 3


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


_regions = {"features": (REGIONS, FEATURE_SIZE)}
_with_boxes = {**_regions, "boxes": (REGIONS, 4)}
#: Name in the benchmarks -> captioner. Soft-Attention uses the feature map of MobileNet-V1 0.75.
PAPER_CAPTIONERS = {
    "soft_attention": PaperCaptioner(_soft_attention, {"image": (224, 224, 3)}),
    "soft_attention_of_map": PaperCaptioner(_soft_attention_of_map, {"features": (49, 768)}),
    "up_down": PaperCaptioner(_up_down, _regions),
    "ort": PaperCaptioner(_ort, _with_boxes),
    "acort": PaperCaptioner(_acort, _with_boxes, DIGITS, RADIX_BASE + NO_DIGITS),
}
