"""Test images of a report: thumbnails for the gallery, and attention maps."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from tfsparsecap.data.images import read_image
from tfsparsecap.errors import InputError
from tfsparsecap.inference.finished_run import FinishedRun
from tfsparsecap.reports.attention import as_map, attention_weights, focus, has_attention
from tfsparsecap.reports.runs import ReportRun
from tfsparsecap.text import one_line

_SIDE, _MAP_SIDE = 288, 128
_COLOUR_MAP = "inferno"


@dataclass(frozen=True)
class GalleryImage:
    """A test image of the gallery.

    Attributes:
        image_id: in the data set.
        jpeg: thumbnail; None if the image cannot be read.
        references: reference captions.
        captions: (label, caption) of each run that captioned it.
    """

    image_id: str
    jpeg: bytes | None
    references: tuple[str, ...]
    captions: tuple[tuple[str, str], ...]

    @property
    def alt(self) -> str:
        """Description for screen readers."""
        return f"test image {one_line(self.image_id)}" + "".join(f": {text}" for text in self.references[:1])


@dataclass(frozen=True)
class AttendedCaption:
    """A caption with an attention map for each token.

    Attributes:
        image_id: of the image.
        label: of the run.
        caption: the whole caption.
        words: token, JPEG of the image with the attention map, and the map's focus in words.
    """

    image_id: str
    label: str
    caption: str
    words: tuple[tuple[str, bytes, str], ...]


def choose(runs: Sequence[ReportRun], number: int) -> list[str]:
    """Chooses test images for the gallery, evenly spaced in the list.

    They are chosen from the images that all runs captioned; if there are none, from those of the first run.

    Args:
        runs: on the same data.
        number: of images; fewer if there are not enough.
    """
    with_captions = [run.captions for run in runs if run.captions]
    if not with_captions:
        return []
    ids = [key for key in with_captions[0] if all(key in captions for captions in with_captions)]
    ids = ids or list(with_captions[0])
    number = min(number, len(ids))
    return [ids[place * len(ids) // number] for place in range(number)]


def gallery(
    runs: Sequence[ReportRun], image_ids: Sequence[str], files: Mapping[str, Path]
) -> tuple[list[GalleryImage], list[str]]:
    """Images with references and captions.

    Args:
        runs: on the same data.
        image_ids: of images that at least one run captioned.
        files: by image id; an image without a file is shown by its captions alone.

    Returns:
        The images, and error messages about unreadable ones.
    """
    images, errors = [], []
    for image_id in image_ids:
        found = [(run.label, run.captions[image_id]) for run in runs if image_id in run.captions]
        jpeg = None
        if image_id in files:
            try:
                jpeg = _jpeg(read_image(files[image_id], _SIDE), 82)
            except InputError as error:
                errors.append(str(error))
        references = next((one.references for _, one in found if one.references), ())
        captions = tuple((label, one.caption) for label, one in found)
        images.append(GalleryImage(image_id, jpeg, references, captions))
    return images, errors


def attended_captions(
    run: FinishedRun, label: str, image_ids: Sequence[str], files: Mapping[str, Path]
) -> list[AttendedCaption]:
    """Captions of images with attention maps; empty if the captioner has none.

    The images are captioned again with the run's own beam.

    Raises:
        InputError: an image cannot be read.
    """
    captioner, image_size = run.captioner, run.image_size
    # The tokens of a radix code are parts of words.
    if image_size is None or not has_attention(captioner) or run.config.data.radix_base is not None:
        return []
    found, decoder = [], run.decoder()
    for image_id in image_ids:
        image = read_image(files[image_id], image_size)
        tokens = np.asarray(decoder({"image": image[None]})[0])[0, 0]
        ends = np.flatnonzero((tokens == captioner.end_id) | (tokens == captioner.pad_id))
        tokens = tokens[: ends[0]] if len(ends) else tokens
        if not len(tokens):
            continue
        weights = attention_weights(captioner, {"image": image[None]}, tokens[None])[0]
        maps = [attention for attention in map(as_map, weights) if attention is not None]
        if not maps:
            return []
        thumbnail, words = read_image(files[image_id], _MAP_SIDE), []
        for token, attention in zip(tokens, maps, strict=True):
            word = run.tokenizer.decode([int(token)]) or "(unknown word)"
            words.append((word, _jpeg(overlay(thumbnail, attention), 75), focus(attention)))
        found.append(AttendedCaption(image_id, label, run.tokenizer.decode(tokens), tuple(words)))
    return found


def overlay(image: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """A greyscale image under the colours of an attention map.

    Args:
        image: uint8 [S, S, 3].
        weights: float [H, W], at least 0; scaled to the range of the colour map.

    Returns:
        uint8 [S, S, 3].
    """
    import matplotlib

    low, high = float(weights.min()), float(weights.max())
    scaled = (weights - low) / (high - low) if high > low else np.zeros_like(weights)
    # Smooth, because the encoder sees more of the image than the cell itself.
    resized = Image.fromarray(scaled.astype("float32")).resize(image.shape[1::-1], Image.Resampling.BICUBIC)
    heat = np.clip(np.asarray(resized), 0, 1)[..., None]
    colours = matplotlib.colormaps[_COLOUR_MAP](heat[..., 0])[..., :3]
    grey = (image @ np.array([0.299, 0.587, 0.114]) / 255)[..., None]
    opacity = 0.25 + 0.5 * heat
    return np.round(255 * ((1 - opacity) * grey + opacity * colours)).clip(0, 255).astype("uint8")


def _jpeg(image: np.ndarray, quality: int) -> bytes:
    content = io.BytesIO()
    Image.fromarray(image).save(content, "JPEG", quality=quality, optimize=True)
    return content.getvalue()
