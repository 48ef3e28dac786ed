"""Structured pruning of transformer captioners: heads and units of the encoder, layers of the decoder."""

from typing import Any

import keras
import numpy as np

from tfsparsecap.captioning.models.transformer_captioner import TransformerCaptioner, selected_layers
from tfsparsecap.errors import check_number

#: Feed-forward layers keep a multiple of so many units.
MULTIPLE = 8


def slim_transformer(
    captioner: TransformerCaptioner, encoder_width: float = 1.0, decoder_layers: int | None = None
) -> tuple[TransformerCaptioner, dict[str, Any]]:
    """Removes heads and feed-forward units of the transformer encoder, and layers of the decoder.

    In each encoder layer those heads and units stay whose weights have the largest L2 norm. The decoder's
    layers are those of `selected_layers`. A layer that is used at several depths loses the same heads and
    units at all of them.

    Args:
        captioner: without gates; it is left untouched.
        encoder_width: share of heads and of units that stays in each encoder layer, in (0, 1]. One head and
            `MULTIPLE` units always stay.
        decoder_layers: depth of the new decoder; None keeps all layers.

    Returns:
        The new captioner, which has the same image encoder, and those of its arguments, which are settings of
        `model`, that have changed.

    Raises:
        InputError: a share or depth out of range.

    Reference:
        RTIC, sections "Targeted width pruning of the Encoder component" and "Targeted depth pruning of
        Decoder component".

    Examples:
        >>> from tfsparsecap.captioning.models import Transformer
        >>> captioner = Transformer(100, size=64, hidden_size=128, layers=4, heads=8, feature_size=32)
        >>> slim_transformer(captioner, 0.6)[1]
        {'encoder_heads': [5, 5, 5, 5], 'encoder_hidden_size': [80, 80, 80, 80]}
    """
    check_number("encoder_width", encoder_width, above=0, at_most=1)
    settings: dict[str, Any] = {}
    kept = [_kept(layer, encoder_width) for layer in captioner.encoder_layers]
    if encoder_width < 1:
        settings["encoder_heads"] = [len(heads) for heads, _ in kept]
        settings["encoder_hidden_size"] = [len(units) for _, units in kept]
    layers = list(range(max(captioner.decoder_order) + 1))
    if decoder_layers is not None:
        depths = selected_layers(captioner.depth, decoder_layers)
        order = [captioner.decoder_order[depth] for depth in depths]
        layers = sorted(set(order))
        settings["decoder_layers"] = decoder_layers
        if captioner.decoder_order != list(range(captioner.depth)):
            settings["share_decoder_layers"] = [layers.index(index) for index in order]
    config = {**captioner.get_config(), **settings, "encoder": captioner.encoder}
    if decoder_layers is not None:
        config["share_decoder_layers"] = settings.get("share_decoder_layers")
    small: TransformerCaptioner = type(captioner)(**config)
    for name in ("feature_embedding", "embedding", "output_layer", "encoder_norm", "decoder_norm"):
        getattr(small, name).set_weights(getattr(captioner, name).get_weights())
    for new, old, (heads, units) in zip(small.encoder_layers, captioner.encoder_layers, kept, strict=True):
        _copy_layer(new, old, heads, units)
    for new, index in zip(small.decoder_layers, layers, strict=True):
        new.set_weights(captioner.decoder_layers[index].get_weights())
    return small, settings


def _kept(layer: Any, width: float) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the heads and of the units of an encoder layer that stay, in order."""
    attention, feed_forward = layer.attention, layer.feed_forward
    heads = np.zeros(attention.heads)
    for projection in attention.projections:
        axis = 0 if projection is attention.merge else 1
        norms = np.square(_kernel(projection)).sum(1 - axis)
        heads += norms.reshape(attention.heads, attention.head_size).sum(1)
    units = np.square(_kernel(feed_forward.inner)).sum(0) + np.square(_kernel(feed_forward.outer)).sum(1)
    count = max(1, round(width * len(heads)))
    wide = len(units) if width == 1 else max(1, round(width * len(units) / MULTIPLE)) * MULTIPLE
    return _largest(heads, count), _largest(units, min(wide, len(units)))


def _largest(norms: np.ndarray, count: int) -> np.ndarray:
    return np.sort(np.argsort(-norms, kind="stable")[:count])


def _kernel(layer: keras.layers.Layer) -> np.ndarray:
    return np.asarray(layer.kernel, np.float32)


def _copy_layer(new: Any, old: Any, heads: np.ndarray, units: np.ndarray) -> None:
    """Copies what stays of an encoder layer."""
    for name in ("attention_norm", "feed_forward_norm"):
        getattr(new, name).set_weights(getattr(old, name).get_weights())
    source = old.attention
    columns = (heads[:, None] * source.head_size + np.arange(source.head_size)).ravel()
    for ours, theirs in zip(new.attention.projections, source.projections, strict=True):
        kernel, bias = _kernel(theirs), np.asarray(theirs.bias)
        if theirs is source.merge:
            # The weights of a removed head's attention sum to 1, so its value bias is a constant.
            gone = np.setdiff1d(np.arange(len(kernel)), columns)
            ours.set_weights([kernel[columns], bias + np.asarray(source.value.bias)[gone] @ kernel[gone]])
        else:
            ours.set_weights([kernel[:, columns], bias[columns]])
    if hasattr(old, "relation"):
        kernel, bias = old.relation.get_weights()
        new.relation.set_weights([kernel[:, heads], bias[heads]])
    inner, outer = old.feed_forward.inner.get_weights(), old.feed_forward.outer.get_weights()
    new.feed_forward.inner.set_weights([inner[0][:, units], inner[1][units]])
    new.feed_forward.outer.set_weights([outer[0][units], outer[1]])
