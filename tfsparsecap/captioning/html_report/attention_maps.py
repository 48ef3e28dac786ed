"""Attention maps: the image regions that a captioner attends to for each token."""

from pathlib import Path

import numpy as np
from keras import ops
from PIL import Image

from tfsparsecap.captioning.data.images import read_image
from tfsparsecap.captioning.inference.finished_run import FinishedRun
from tfsparsecap.captioning.models.captioner_base import Captioner, Inputs
from tfsparsecap.captioning.models.regions import AdditiveAttentionCaptioner


def attention_weights(captioner: Captioner, inputs: Inputs, token_ids: np.ndarray) -> np.ndarray:
    """The attention weights with which each token was predicted.

    Args:
        captioner: a `SoftAttention` or an `UpDown`, without gates.
        inputs: of `Captioner.encode`, for B images.
        token_ids: int32 [B, T], without the start token.

    Returns:
        float32 [B, T, N]; each [b, t] sums to 1 over the N regions.

    Examples:
        >>> from tfsparsecap.captioning.models import SoftAttention
        >>> captioner = SoftAttention(1000, feature_size=768)
        >>> features = np.random.rand(2, 49, 768).astype("float32")
        >>> attention_weights(captioner, {"features": features}, np.ones((2, 5), "int32")).shape
        (2, 5, 49)
    """
    memory = captioner.encode(inputs)
    state = captioner.initial_state(memory)
    previous = np.full(len(token_ids), captioner.start_id, "int32")
    steps = []
    for token in np.asarray(token_ids, "int32").T:
        _, after = captioner.step(ops.convert_to_tensor(previous), state, memory)
        weights = captioner.attention_weights(captioner.attention_state(state, after), memory)
        steps.append(ops.convert_to_numpy(ops.cast(weights, "float32")))
        state, previous = after, token
    return np.stack(steps, axis=1)


def attention_maps(run: FinishedRun, path: Path, side: int) -> list[tuple[str, np.ndarray]]:
    """The words of an image's caption, each with the image under the colours of its attention map.

    The image is captioned again with the run's own beam.

    Args:
        path: the image file.
        side: size of the maps in pixels.

    Returns:
        Words and images, uint8 [side, side, 3]; empty if the captioner has no attention over a grid of
        regions, or its tokens are not words.

    Raises:
        InputError: the image cannot be read.
    """
    captioner, size = run.captioner, run.image_size
    # The tokens of a radix code are parts of words.
    if not isinstance(captioner, AdditiveAttentionCaptioner) or size is None or run.config.data.radix_base:
        return []
    inputs = {"image": read_image(path, size)[None]}
    tokens = np.asarray(run.decoder()(inputs)[0])[0, 0]
    ends = np.flatnonzero((tokens == captioner.end_id) | (tokens == captioner.pad_id))
    tokens = tokens[: ends[0]] if len(ends) else tokens
    if not len(tokens):
        return []
    weights = attention_weights(captioner, inputs, tokens[None])[0]
    rows = round(weights.shape[1] ** 0.5)
    if rows * rows != weights.shape[1]:
        return []
    image = read_image(path, side)
    words = [run.tokenizer.decode([int(token)]) or "(unknown word)" for token in tokens]
    return [
        (word, overlay(image, token_weights.reshape(rows, rows)))
        for word, token_weights in zip(words, weights, strict=True)
    ]


def overlay(image: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """A greyscale image under the colours of an attention map.

    Args:
        image: uint8 [S, S, 3].
        weights: float [H, W], at least 0; scaled to the range of the colour map.

    Returns:
        uint8 [S, S, 3].
    """
    import matplotlib

    scaled = (weights - weights.min()) / (np.ptp(weights) or 1)
    # Smooth, because the encoder sees more of the image than the cell itself.
    resized = Image.fromarray(scaled.astype("float32")).resize(image.shape[1::-1], Image.Resampling.BICUBIC)
    heat = np.clip(np.asarray(resized), 0, 1)[..., None]
    colours = matplotlib.colormaps["inferno"](heat[..., 0])[..., :3]
    grey = (image @ np.array([0.299, 0.587, 0.114]) / 255)[..., None]
    opacity = 0.25 + 0.5 * heat
    return np.round(255 * ((1 - opacity) * grey + opacity * colours)).clip(0, 255).astype("uint8")
