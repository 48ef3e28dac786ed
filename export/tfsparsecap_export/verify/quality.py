"""Measures the CIDEr that int8 weights cost, and chooses layers that stay float."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from tfsparsecap.errors import InputError
from tfsparsecap.inference.confidence import Calibration, caption_length, is_good
from tfsparsecap.metrics.scores import compute_scores
from tfsparsecap_export.convert.graph import CAPTION_SIGNATURE
from tfsparsecap_export.encode.file import LayerReport, layer_name
from tfsparsecap_export.samples import Sample

#: Fraction of the CIDEr that int8 may cost; if it costs more, some layers stay float.
MOST_LOSS = 0.01


@dataclasses.dataclass(frozen=True)
class CaptionedSamples:
    """Inputs with reference captions.

    Attributes:
        samples: inputs of the file, each with a first axis of 1.
        references: the reference captions of each input.
        to_text: token ids int32 [T] -> the caption in words.
    """

    samples: Sequence[Sample]
    references: Sequence[Sequence[str]]
    to_text: Callable[[np.ndarray], str]


@dataclasses.dataclass(frozen=True)
class Quality:
    """The CIDEr that int8 costs.

    Attributes:
        images: number of captioned images.
        float_cider: CIDEr of the model with float32 weights, or None.
        cider: CIDEr of the file, or None.
        kept_float: layers that stay float: those that the caller requested, then those whose rounding costs
            too much, in the order in which they were found.
        not_computed: why there is no CIDEr, or "".
    """

    images: int
    float_cider: float | None
    cider: float | None
    kept_float: tuple[str, ...] = ()
    not_computed: str = ""

    @property
    def loss(self) -> float:
        """Fraction of the CIDEr that is lost; negative if int8 scores higher; 0 without a CIDEr."""
        return 1 - self.cider / self.float_cider if self.cider is not None and self.float_cider else 0.0

    def as_dict(self) -> dict:
        """The known values, for JSON."""
        known = {name: value for name, value in vars(self).items() if value not in (None, "")}
        return {**known, "kept_float": list(self.kept_float)}


def best_captions(content: bytes, samples: Sequence[Sample]) -> Iterator[tuple[np.ndarray, float]]:
    """Token ids int32 [T] and score of the best captions of a captioner's .tflite file."""
    from ai_edge_litert.interpreter import Interpreter

    run = Interpreter(model_content=content, num_threads=1).get_signature_runner(CAPTION_SIGNATURE)
    for sample in samples:
        outputs = run(**sample)
        yield outputs["token_ids"][0], float(outputs["scores"][0])


def calibrate_confidence(content: bytes, validation: CaptionedSamples, end_id: int) -> Calibration:
    """Fits the confidence of a captioner's .tflite file to its captions of validation images."""
    scores, lengths, good = [], [], []
    found = best_captions(content, validation.samples)
    for (token_ids, score), references in zip(found, validation.references, strict=True):
        scores.append(score)
        lengths.append(caption_length(token_ids, end_id))
        good.append(is_good(validation.to_text(token_ids), references))
    return Calibration.fit(scores, lengths, good)


def cider(content: bytes, validation: CaptionedSamples) -> float:
    """CIDEr (light tokenisation) of the best captions of a captioner's .tflite file."""
    found = best_captions(content, validation.samples)
    captions = {number: validation.to_text(token_ids) for number, (token_ids, _) in enumerate(found)}
    references = dict(enumerate(validation.references))
    return compute_scores(references, captions, ["CIDEr"], "light").values["CIDEr"]


def choose_float_layers(
    encode: Callable[[Sequence[str]], tuple[bytes, list[LayerReport]]],
    float_content: bytes,
    validation: CaptionedSamples,
    keep_float: Sequence[str] = (),
    progress: Callable[[str], None] = lambda text: None,
) -> Quality | None:
    """Finds the layers that must stay float so that int8 costs at most `MOST_LOSS`.

    The search is greedy: while the loss is larger, each int8 layer is tried as float, and the one that gains
    most stays float. If no CIDEr can be computed, as for a single image, all other layers stay int8.

    Args:
        encode: layers to keep float -> the file, and the reports on its constants.
        float_content: the same model with all weights float32.
        validation: images with reference captions.
        keep_float: layers to keep float in any case.
        progress: called with a short status text.

    Returns:
        The CIDEr of the file, or None if it has no int8 layers.

    Examples:
        >>> quality = choose_float_layers(encode, dense, validation)  # doctest: +SKIP
        >>> quality.kept_float, round(quality.loss, 4)  # doctest: +SKIP
        (('output/kernel',), 0.0061)
    """
    images, kept = len(validation.samples), tuple(keep_float)
    content, layers = encode(kept)
    if not _int8_layers(layers):
        return None
    references = dict(enumerate(validation.references))
    possible = compute_scores(references, dict.fromkeys(references, ""), ["CIDEr"], "light")
    if "CIDEr" in possible.not_computed:
        return Quality(images, None, None, kept, possible.not_computed["CIDEr"])
    progress(f"captioning {images} validation images, float32")
    float_cider = cider(float_content, validation)
    progress(f"captioning {images} validation images, int8")
    quality = Quality(images, float_cider, cider(content, validation), kept)
    while quality.loss > MOST_LOSS and (int8_layers := _int8_layers(layers)):
        trials = []
        for number, name in enumerate(int8_layers, 1):
            progress(
                f"int8 costs {quality.loss:.1%} of the CIDEr: trying {name} as float"
                f" ({number} of {len(int8_layers)})"
            )
            content, others = encode((*kept, name))
            trials.append((cider(content, validation), name, others))
        best, name, layers = max(trials, key=lambda trial: trial[0])
        kept = (*kept, name)
        quality = Quality(images, float_cider, best, kept)
    return quality


def _int8_layers(layers: Iterable[LayerReport]) -> list[str]:
    """Names of the layers that are stored as int8; the parts of a split layer count as one."""
    return list(dict.fromkeys(layer_name(layer.name) for layer in layers if not layer.is_float))


def matching_layers(patterns: Iterable[str], names: Sequence[str]) -> list[str]:
    """Layers whose path contains one of the patterns as whole parts: "lstm" matches "captioner/lstm/kernel".

    Raises:
        InputError: a pattern matches no layer.
    """
    found = []
    for pattern in patterns:
        part = f"/{pattern.strip('/')}/"
        matching = [name for name in names if part in f"/{name}/"]
        if not matching:
            known = ", ".join(names) or "none, the model has no such layers"
            raise InputError(f"there is no layer {pattern} to keep float: the layers are {known}")
        found.extend(matching)
    return list(dict.fromkeys(found))
