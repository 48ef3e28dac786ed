"""Measures the CIDEr that int8 weights cost, and chooses layers that stay float."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from PIL import Image

from tfsparsecap.captioning.inference.bundle import CAPTION_SIGNATURE
from tfsparsecap.captioning.inference.confidence import Calibration, caption_length, is_good
from tfsparsecap.captioning.search.search_options import FUNCTION_WORDS
from tfsparsecap.core.litert import signature_runner
from tfsparsecap.core.progress import Progress, silent, with_count
from tfsparsecap.errors import InputError
from tfsparsecap_export.encode.encoded_file import EncodedFile, LayerReport, layer_name
from tfsparsecap_export.samples import Sample

#: Fraction of the CIDEr that int8 may cost; if it costs more, some layers stay float.
MOST_LOSS = 0.01
#: A loss of fewer standard errors may be an accident of the validation images and keeps no layer float.
STANDARD_ERRORS = 2.0
#: A drawn image for so many validation images.
PHOTOGRAPHS_PER_DRAWN = 16


@dataclasses.dataclass(frozen=True)
class CaptionedSamples:
    """Inputs with reference captions.

    Attributes:
        samples: inputs of the file, each with a first axis of 1.
        references: the reference captions of each input.
        to_text: token ids int32 [T] -> the caption in words.
        function_words: of the captions' language, see `SearchOptions`.
    """

    samples: Sequence[Sample]
    references: Sequence[Sequence[str]]
    to_text: Callable[[np.ndarray], str]
    function_words: Sequence[str] = FUNCTION_WORDS


@dataclasses.dataclass(frozen=True)
class Quality:
    """The CIDEr that int8 costs.

    Attributes:
        images: number of captioned images.
        float_cider: CIDEr of the model with float32 weights, or None.
        cider: CIDEr of the file, or None.
        loss_error: standard error of `loss`, for other images of the same kind, or None.
        kept_float: layers that stay float: those that the caller requested, then those whose rounding costs
            too much, in the order in which they were found.
        not_computed: why there is no CIDEr, or "".
    """

    images: int
    float_cider: float | None
    cider: float | None
    loss_error: float | None = None
    kept_float: tuple[str, ...] = ()
    not_computed: str = ""

    @classmethod
    def measure(cls, float_ciders: np.ndarray, ciders: np.ndarray, kept_float: tuple[str, ...]) -> "Quality":
        """The quality for the CIDEr of each image with float32 weights and in the file."""
        mean = float(np.mean(float_ciders))
        error = float(np.std(float_ciders - ciders, ddof=1) / np.sqrt(len(ciders)) / mean) if mean else 0.0
        return cls(len(ciders), mean, float(np.mean(ciders)), error, kept_float)

    @property
    def loss(self) -> float:
        """Fraction of the CIDEr that is lost; negative if int8 scores higher; 0 without a CIDEr."""
        return 1 - self.cider / self.float_cider if self.cider is not None and self.float_cider else 0.0

    @property
    def too_much(self) -> bool:
        """Whether the loss is larger than `MOST_LOSS`, and no accident."""
        return self.loss > max(MOST_LOSS, STANDARD_ERRORS * (self.loss_error or 0.0))

    def as_dict(self) -> dict:
        """The known values, for JSON."""
        values = {name: value for name, value in vars(self).items() if value not in (None, "")}
        return {**values, "kept_float": list(self.kept_float)}


def best_captions(
    content: bytes, samples: Iterable[Sample]
) -> Iterator[tuple[np.ndarray, float, np.ndarray]]:
    """The best captions of a captioner's .tflite file.

    Yields:
        Token ids, int32 [T]; score; probabilities of the objects, float32 [K], none without objects.
    """
    run = signature_runner(content, CAPTION_SIGNATURE, num_threads=1)
    for sample in samples:
        outputs = run(**sample)
        yield outputs["token_ids"][0], float(outputs["scores"][0]), outputs.get("objects", np.zeros(0))


def calibrate_confidence(
    content: bytes, validation: CaptionedSamples, end_id: int, progress: Progress = silent
) -> Calibration:
    """Fits the confidence of a captioner's .tflite file to its captions of validation images.

    Captions of drawn images, one for `PHOTOGRAPHS_PER_DRAWN` photographs, count as not good, so that the
    captioner is less sure of what is no photograph.
    """
    scores, lengths, good, objects = [], [], [], []
    drawn = _drawn_images(validation.samples)
    text = f"calibrating the confidence on {len(validation.samples)} images"
    captions = best_captions(content, with_count(progress, text, [*validation.samples, *drawn]))
    expected = [*validation.references, *([()] * len(drawn))]
    for (token_ids, score, probabilities), references in zip(captions, expected, strict=True):
        scores.append(score)
        objects.append(probabilities)
        lengths.append(caption_length(token_ids, end_id))
        good.append(is_good(validation.to_text(token_ids), references, validation.function_words))
    fitted = Calibration.fit(scores, lengths, good, objects)
    images = len(validation.samples)
    return dataclasses.replace(fitted, images=images, good=sum(good) / max(1, images))


def _drawn_images(samples: Sequence[Sample]) -> list[Sample]:
    """Noise, gradients of colours, and single colours, in turn; none if the samples are not images."""
    if not samples or len(samples[0]) != 1:
        return []
    ((name, image),) = samples[0].items()
    if image.ndim != 4 or image.shape[-1] != 3:
        return []
    random, side = np.random.default_rng(0), image.shape[1]
    drawn = []
    for number in range(len(samples) // PHOTOGRAPHS_PER_DRAWN):
        cells = (side, 6, 1)[number % 3]
        colours = Image.fromarray(random.integers(0, 256, (cells, cells, 3), np.uint8))
        pixels = np.asarray(colours.resize((side, side), Image.Resampling.BICUBIC))
        drawn.append({name: pixels[None].astype(image.dtype)})
    return drawn


def ciders(
    content: bytes, validation: CaptionedSamples, progress: Progress = silent, text: str = "captioning"
) -> np.ndarray:
    """CIDEr of the best caption of each image, float64 [images], by a captioner's .tflite file."""
    from tfsparsecap.captioning.metrics.scores import cider_of_images  # models without captions do without it

    best = best_captions(content, with_count(progress, text, validation.samples))
    captions = {number: validation.to_text(token_ids) for number, (token_ids, *_) in enumerate(best)}
    return cider_of_images(dict(enumerate(validation.references)), captions)


def choose_float_layers(
    encode: Callable[[Sequence[str]], EncodedFile],
    float_content: bytes,
    validation: CaptionedSamples,
    keep_float: Sequence[str] = (),
    progress: Progress = silent,
) -> Quality | None:
    """Finds the layers that must stay float so that int8 does not cost too much, see `Quality.too_much`.

    The search is greedy: while the loss is larger, each int8 layer is tried as float, and the one that gains
    most stays float. If no CIDEr can be computed, as for a single image, all other layers stay int8.

    Args:
        encode: layers to keep float -> the file, and the reports on its constants.
        float_content: the same model with all weights float32.
        validation: images with reference captions.
        keep_float: layers to keep float in any case.
        progress: see `Progress`.

    Returns:
        The CIDEr of the file, or None if it has no int8 layers.

    Examples:
        >>> quality = choose_float_layers(encode, dense, validation)  # doctest: +SKIP
        >>> quality.kept_float, round(quality.loss, 4)  # doctest: +SKIP
        (('output/kernel',), 0.0061)
    """
    images, float_layers = len(validation.samples), tuple(keep_float)
    content, layers = encode(float_layers)
    if not _int8_layers(layers):
        return None
    from tfsparsecap.captioning.metrics.scores import cider_of_images

    references = dict(enumerate(validation.references))
    try:
        cider_of_images(references, dict.fromkeys(references, ""))
    except InputError as error:
        return Quality(images, None, None, kept_float=float_layers, not_computed=str(error))
    text = f"captioning {images} validation images,"
    of_float = ciders(float_content, validation, progress, f"{text} float32")
    quality = Quality.measure(of_float, ciders(content, validation, progress, f"{text} int8"), float_layers)
    while quality.too_much and (int8_layers := _int8_layers(layers)):
        trials = []
        for number, name in enumerate(int8_layers, 1):
            content, others = encode((*float_layers, name))
            text = f"int8 costs {quality.loss:.1%}: {name} as float ({number} of {len(int8_layers)})"
            scores = ciders(content, validation, progress, text)
            trials.append((Quality.measure(of_float, scores, (*float_layers, name)), others))
        quality, layers = min(trials, key=lambda trial: trial[0].loss)
        float_layers = quality.kept_float
    return quality


def _int8_layers(layers: Iterable[LayerReport]) -> list[str]:
    """Names of the layers that are stored as int8; the parts of a split layer count as one."""
    return list(dict.fromkeys(layer_name(layer.name) for layer in layers if not layer.is_float))
