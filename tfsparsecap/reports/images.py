"""Pictures of a report: thumbnails for its gallery, and heat over them where a captioner looked."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from tfsparsecap.data.images import read_image
from tfsparsecap.errors import InputError
from tfsparsecap.inference.finished_run import FinishedRun
from tfsparsecap.reports.attention import (
    WordMap,
    as_map,
    attention_weights,
    has_attention,
    where,
)
from tfsparsecap.reports.runs import ReportRun
from tfsparsecap.settings.build import load_data
from tfsparsecap.settings.schema import Config

_SIDE, _WORD_SIDE = 288, 128
_HEAT = "inferno"


@dataclass(frozen=True)
class GalleryPicture:
    """A test picture of the gallery.

    Attributes:
        image_id: its name in the data set.
        jpeg: a thumbnail; None where the picture cannot be read.
        references: what people say.
        captions: (run's label, its caption), of the runs that captioned it.
    """

    image_id: str
    jpeg: bytes | None
    references: tuple[str, ...]
    captions: tuple[tuple[str, str], ...]

    @property
    def alt(self) -> str:
        """What is to be seen on it, as a person says."""
        said = f", which a person describes as: {self.references[0]}" if self.references else ""
        return f"test picture {self.image_id}{said}"


@dataclass(frozen=True)
class LookedAt:
    """A caption with a picture for each of its words.

    Attributes:
        image_id: of the picture.
        label: of the run.
        caption: all words.
        words: word, JPEG of the picture under the heat, and where the heat is, in words.
    """

    image_id: str
    label: str
    caption: str
    words: tuple[tuple[str, bytes, str], ...]


def image_files(config: Config) -> dict[str, Path]:
    """Files of the test pictures by their ids.

    Raises:
        InputError: the data is not where the settings say.
    """
    return {record.image_id: record.image for record in load_data(config).split("test")}


def choose(runs: Sequence[ReportRun], number: int) -> list[str]:
    """Ids of test pictures for the gallery, evenly over the list and not the best ones.

    Where no picture was captioned by all runs, they are those of the first run that has captions.

    Args:
        runs: of the same data.
        number: of pictures; fewer where there are not so many.
    """
    with_captions = [run.captions for run in runs if run.captions]
    if not with_captions or number < 1:
        return []
    ids = [key for key in with_captions[0] if all(key in captions for captions in with_captions)]
    ids = ids or list(with_captions[0])
    number = min(number, len(ids))
    return [ids[place * len(ids) // number] for place in range(number)]


def gallery(
    runs: Sequence[ReportRun], image_ids: Sequence[str], files: Mapping[str, Path]
) -> tuple[list[GalleryPicture], list[str]]:
    """Pictures with what people and runs say.

    Args:
        runs: of the same data.
        image_ids: of pictures that at least one of them captioned.
        files: by id; a picture that has none is shown by its captions alone.

    Returns:
        The pictures, and sentences about those that cannot be read.
    """
    pictures, unread = [], []
    for image_id in image_ids:
        said = [(run.label, run.captions[image_id]) for run in runs if image_id in run.captions]
        jpeg = None
        if image_id in files:
            try:
                jpeg = _jpeg(read_image(files[image_id], _SIDE), 82)
            except InputError as error:
                unread.append(str(error))
        references = next((one.references for _, one in said if one.references), ())
        captions = tuple((label, one.caption) for label, one in said)
        pictures.append(GalleryPicture(image_id, jpeg, references, captions))
    return pictures, unread


def looked_at(
    trained: FinishedRun, label: str, image_ids: Sequence[str], files: Mapping[str, Path]
) -> list[LookedAt]:
    """Captions of pictures with where a run looked at each word; empty where its captioner has no such map.

    The pictures are captioned again with the run's own beam.

    Raises:
        InputError: a picture cannot be read.
    """
    captioner = trained.captioner
    # A digit of a radix code is no word to look for.
    if not has_attention(captioner) or trained.config.data.radix_base is not None:
        return []
    found = []
    decoder = trained.decoder()
    for image_id in image_ids:
        if image_id not in files:
            continue
        image = read_image(files[image_id], trained.image_size)
        token_ids, _ = decoder({"image": image[None]})
        tokens = _said(np.asarray(token_ids)[0, 0], captioner.end_id, captioner.pad_id)
        if not len(tokens):
            continue
        weights = attention_weights(captioner, {"image": image[None]}, tokens[None])[0]
        maps = [as_map(one) for one in weights]
        if any(one is None for one in maps):
            return []
        words = [trained.tokenizer.decode([int(token)]) or "(unknown word)" for token in tokens]
        thumbnail = read_image(files[image_id], _WORD_SIDE)
        drawn = [
            (one.word, _jpeg(overlaid(thumbnail, one.weights), 75), where(one.weights))
            for one in map(WordMap, words, maps)
        ]
        found.append(LookedAt(image_id, label, trained.tokenizer.decode(tokens), tuple(drawn)))
    return found


def _said(token_ids: np.ndarray, end_id: int, pad_id: int) -> np.ndarray:
    """The tokens before the end."""
    over = np.flatnonzero((token_ids == end_id) | (token_ids == pad_id))
    return token_ids[: over[0]] if len(over) else token_ids


def overlaid(picture: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """A picture, greyed, under the heat of a map.

    Args:
        picture: uint8 [S, S, 3].
        weights: float [H, W], at least 0; the highest one gets the brightest colour.

    Returns:
        uint8 [S, S, 3].
    """
    import matplotlib

    side = picture.shape[0]
    low, high = float(weights.min()), float(weights.max())
    share = (weights - low) / (high - low) if high > low else np.zeros_like(weights)
    # Each cell was seen with what is around it: soft edges say so, squares would not.
    heat = Image.fromarray(share.astype("float32")).resize((side, side), Image.Resampling.BICUBIC)
    heat = np.clip(np.asarray(heat), 0, 1)
    colours = matplotlib.colormaps[_HEAT](heat)[..., :3]
    grey = (picture @ np.array([0.299, 0.587, 0.114]) / 255)[..., None]
    opaque = 0.25 + 0.5 * heat[..., None]
    return np.round(255 * ((1 - opaque) * grey + opaque * colours)).clip(0, 255).astype("uint8")


def _jpeg(picture: np.ndarray, quality: int) -> bytes:
    content = io.BytesIO()
    Image.fromarray(picture).save(content, "JPEG", quality=quality, optimize=True)
    return content.getvalue()
