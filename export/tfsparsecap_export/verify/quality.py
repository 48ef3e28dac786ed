"""What int8 costs in captions: CIDEr of a file on pictures whose captions are known."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from tfsparsecap.errors import InputError
from tfsparsecap.metrics.scores import every_score, score
from tfsparsecap_export.convert.graph import CAPTION_SIGNATURE
from tfsparsecap_export.samples import Sample

#: Share of the CIDEr that int8 may cost before layers are left float.
MOST_LOSS = 0.01


@dataclasses.dataclass(frozen=True)
class Validation:
    """Inputs and what people say about them.

    Attributes:
        samples: inputs of the file, each with leading axis 1.
        references: for each of them its captions.
        to_text: token ids int32 [T] -> the caption in words.
    """

    samples: Sequence[Sample]
    references: Sequence[Sequence[str]]
    to_text: Callable[[np.ndarray], str]


@dataclasses.dataclass(frozen=True)
class Quality:
    """What int8 costs.

    Attributes:
        images: that were captioned.
        float_cider: CIDEr of the same model with float32 weights; None where it could not be computed.
        cider: CIDEr of the file, or None.
        kept_float: layers that stay float because their rounding costs too much, or because that was asked
            for; the first one found first.
        not_computed: why there is no CIDEr, or "".
    """

    images: int
    float_cider: float | None
    cider: float | None
    kept_float: tuple[str, ...] = ()
    not_computed: str = ""

    @property
    def loss(self) -> float:
        """Share of the CIDEr that is lost; negative where int8 happens to be better; 0 without a CIDEr."""
        return 1 - self.cider / self.float_cider if self.float_cider else 0.0

    def as_dict(self) -> dict:
        """Plain values of what is known, for JSON."""
        known = {name: value for name, value in vars(self).items() if value not in (None, "")}
        return {**known, "kept_float": list(self.kept_float)}


def cider(content: bytes, validation: Validation) -> float:
    """CIDEr (light tokenisation) of the best captions that a file gives.

    Args:
        content: a captioner's .tflite file.
        validation: what to caption; pictures of which a CIDEr can be computed.
    """
    from ai_edge_litert.interpreter import Interpreter

    run = Interpreter(model_content=content, num_threads=1).get_signature_runner(CAPTION_SIGNATURE)
    captions = {
        number: validation.to_text(run(**sample)["token_ids"][0])
        for number, sample in enumerate(validation.samples)
    }
    return score(dict(enumerate(validation.references)), captions, metrics=("CIDEr",))["CIDEr"]


def _why_no_cider(validation: Validation) -> str:
    """The reason why there is no CIDEr of any captions of these pictures, such as of a single one, or ""."""
    references = dict(enumerate(validation.references))
    found = every_score(references, dict.fromkeys(references, ""), ["CIDEr"], "light")
    return found.not_computed.get("CIDEr", "")


def settle(
    build: Callable[[frozenset[str]], tuple[bytes, list[str]]],
    float_content: bytes,
    validation: Validation,
    *,
    keep_float: Iterable[str] = (),
    progress: Callable[[str], None] = lambda text: None,
) -> Quality:
    """Finds the layers that have to stay float for int8 to cost at most `MOST_LOSS`.

    As long as the loss is larger, each int8 layer is tried as float by itself, and the one that gains most
    stays float. Where there is no CIDEr, all of them stay int8.

    Args:
        build: layers to keep float -> the file, and its int8 layers.
        float_content: the same model with all weights float32.
        validation: pictures with their captions.
        keep_float: layers to keep float from the start.
        progress: is told in a few words what is being done.

    Example:
        >>> quality = settle(build, dense, validation)  # doctest: +SKIP
        >>> quality.kept_float, round(quality.loss, 4)  # doctest: +SKIP
        (('output/kernel',), 0.0061)
    """
    images, kept = len(validation.samples), tuple(keep_float)
    reason = _why_no_cider(validation)
    if reason:
        return Quality(images, None, None, kept, reason)
    progress(f"captioning {images} validation pictures, float32")
    float_cider = cider(float_content, validation)
    content, rounded = build(frozenset(kept))
    progress(f"captioning {images} validation pictures, int8")
    quality = Quality(images, float_cider, cider(content, validation), kept)
    while quality.loss > MOST_LOSS and rounded:
        tried = []
        for number, name in enumerate(rounded, 1):
            progress(
                f"int8 costs {quality.loss:.1%} of the CIDEr: trying {name} as float"
                f" ({number} of {len(rounded)})"
            )
            content, left = build(frozenset((*kept, name)))
            tried.append((cider(content, validation), name, left))
        best, name, rounded = max(tried, key=lambda trial: trial[0])
        kept = (*kept, name)
        quality = Quality(images, float_cider, best, kept)
    return quality


def chosen_names(asked: Iterable[str], names: Sequence[str]) -> list[str]:
    """The layers that are meant by names as people give them: whole, or the last parts of a path.

    Raises:
        InputError: none is meant.
    """
    found = []
    for name in asked:
        parts = name.strip("/").split("/")
        meant = [
            full
            for full in names
            if any(full.split("/")[i : i + len(parts)] == parts for i in range(full.count("/") + 1))
        ]
        if not meant:
            known = ", ".join(names) or "none, the model has no layer to choose"
            raise InputError(f"there is no layer {name} to keep float: give one of {known}")
        found.extend(meant)
    return list(dict.fromkeys(found))
