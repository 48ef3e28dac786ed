"""The papers' published captioners in Keras: built from their configurations, with their PyTorch weights."""

import dataclasses
from collections.abc import Mapping

import keras
import numpy as np

from tfsparsecap.captioning.models.captioner_base import Captioner
from tfsparsecap.captioning.models.object_relation_transformer import ObjectRelationTransformer
from tfsparsecap.captioning.models.transformer_layers import DeviationNorm, SharedAttention
from tfsparsecap.captioning.models.up_down import UpDown
from tfsparsecap.errors import InputError, check_number, check_whole
from tfsparsecap.gates import gates

#: Suffix of the name of a pruned weight's mask: logits of learned gates, or zeros and ones.
MASK_SUFFIX = "_pruning_mask"
#: Key of a published `config.json` -> argument of `ObjectRelationTransformer`, and of `UpDown`.
_TRANSFORMER_SIZES = {
    "vocab_size": "vocabulary_size",
    "d_model": "size",
    "dim_feedforward": "hidden_size",
    "num_layers": "layers",
    "num_heads": "heads",
    "max_seq_length": "max_length",
    "att_feat_size": "feature_size",
}
_UP_DOWN_SIZES = {
    "vocab_size": "vocabulary_size",
    "rnn_size": "rnn_size",
    "input_encoding_size": "embedding_size",
    "att_hid_size": "attention_size",
    "att_feat_size": "feature_size",
}
_SPECIAL_IDS = {"bos_token_id": "start_id", "eos_token_id": "end_id", "pad_token_id": "pad_id"}


@dataclasses.dataclass(frozen=True)
class _Columns:
    """Columns of a published matrix, or elements of a published vector."""

    name: str
    start: int
    stop: int


@dataclasses.dataclass(frozen=True)
class _Assignment:
    """A weight, the published parts it is concatenated from (along rows if `stacked`), and whether they are
    transposed.
    """

    weight: keras.Variable
    sources: tuple[_Columns, ...]
    transposed: bool = False
    stacked: bool = False


def published_captioner(config: Mapping) -> Captioner:
    """Creates a captioner with random weights and the sizes of a published `config.json`.

    Args:
        config: content of the file. `caption_model` is `up_down_lstm` or `relation_transformer`, with or
            without `_prune`.

    Raises:
        InputError: the captioner is not supported, or a size is missing or not a whole number.
    """
    kind = str(config.get("caption_model", "")).removesuffix("_prune")
    if kind == "relation_transformer":
        return _transformer(config)
    if kind != "up_down_lstm":
        raise InputError(
            f'the configuration has caption_model "{config.get("caption_model")}": supported are'
            " up_down_lstm, relation_transformer, and both with _prune"
        )
    if config.get("use_bn"):
        raise InputError(f"use_bn is {config['use_bn']}: batch normalisation of features is not supported")
    sizes = {ours: _whole(config, theirs, least=1) for theirs, ours in _UP_DOWN_SIZES.items()}
    ids = {ours: _whole(config, theirs) for theirs, ours in _SPECIAL_IDS.items()}
    dropout = _share(config, "drop_prob_lm")
    if config.get("fc_feat_size", sizes["feature_size"]) != sizes["feature_size"]:
        raise InputError(
            f"fc_feat_size is {config['fc_feat_size']} and att_feat_size {sizes['feature_size']}: they must"
            " be equal"
        )
    layers = _whole(config, "logit_layers", 1, least=1)
    return UpDown(**sizes, **ids, output_layers=layers, dropout=dropout)


def _transformer(config: Mapping) -> ObjectRelationTransformer:
    if config.get("no_box_trigonometric_embedding") or config.get("box_trigonometric_embedding") is False:
        raise InputError(
            "the configuration has boxes without sines (box_trigonometric_embedding), which are not supported"
        )
    for name in ("share_layer_encoder", "share_layer_decoder"):
        order = config.get(name)
        is_valid = isinstance(order, list) and all(isinstance(index, int) and index >= 0 for index in order)
        if order is not None and not is_valid:
            raise InputError(f"{name} is {order!r} in the configuration: it must be a list of whole numbers")
    dropout = _share(config, "drop_prob_src")
    # Configurations before version 0.6 do not contain the number of heads, which was 8.
    sizes = {"num_heads": 8, **config}
    return ObjectRelationTransformer(
        **{ours: _whole(sizes, theirs, least=1) for theirs, ours in _TRANSFORMER_SIZES.items()},
        **{ours: _whole(config, theirs) for theirs, ours in _SPECIAL_IDS.items()},
        share_encoder_layers=config.get("share_layer_encoder"),
        share_decoder_layers=config.get("share_layer_decoder"),
        share_encoder_attention=config.get("share_att_encoder"),
        share_decoder_attention=config.get("share_att_decoder"),
        feature_dropout=dropout,
        shared_caches=True,
    )


def load_published(captioner: Captioner, arrays: Mapping[str, np.ndarray]) -> None:
    """Loads published weights into a captioner.

    Masks (`NAME_pruning_mask`, in checkpoints saved before pruning ended) are applied: masked weights become
    0.

    Args:
        captioner: a captioner of the same sizes, without gates.
        arrays: published name -> values in PyTorch's layout, any float dtype.

    Raises:
        InputError: arrays are missing, unknown, of another shape, or contain NaN; or the captioner has gates
            or belongs to a class without published weights. The captioner is then unchanged.
    """
    plan = _plan(captioner)
    shapes = _shapes(plan)
    masks = {name: name.removesuffix(MASK_SUFFIX) for name in arrays if name.endswith(MASK_SUFFIX)}
    missing = sorted(shapes.keys() - arrays.keys())
    unknown = sorted(arrays.keys() - shapes.keys() - {name for name in masks if masks[name] in shapes})
    if missing or unknown:
        parts = [f"lacks {_some(missing)}"] if missing else []
        parts += [f"has {_some(unknown)}, which no layer uses"] if unknown else []
        raise InputError(
            f"the checkpoint {' and '.join(parts)}: give one of {type(captioner).__name__}, of the same sizes"
        )
    values = {}
    for name, shape in shapes.items():
        values[name] = _numbers(arrays, name, shape)
        if name + MASK_SUFFIX in arrays:
            # Gates with logits above 0 are open, and so are ones in a mask of zeros and ones.
            values[name] = values[name] * (_numbers(arrays, name + MASK_SUFFIX, shape) > 0)
    joined: dict[int, np.ndarray] = {}
    for assignment in plan:
        pieces = [values[part.name][..., part.start : part.stop] for part in assignment.sources]
        together = np.concatenate(pieces, axis=0 if assignment.stacked else -1)
        together = together.T if assignment.transposed else together
        earlier = joined.setdefault(id(assignment.weight), together)
        if not np.array_equal(earlier, together):
            raise InputError(
                f"{assignment.sources[0].name} of the checkpoint differs from the layer that it shares"
                " according to the configuration: give this checkpoint's configuration (share_layer_encoder,"
                " share_layer_decoder)"
            )
    for assignment in plan:
        assignment.weight.assign(joined[id(assignment.weight)])


def published_arrays(captioner: Captioner) -> dict[str, np.ndarray]:
    """Returns a captioner's weights under their published names in PyTorch's layout.

    The inverse of `load_published`.

    Raises:
        InputError: the captioner has gates or belongs to a class without published weights.

    Examples:
        >>> arrays = published_arrays(UpDown(100, rnn_size=8, feature_size=16))
        >>> arrays["core.att_lstm.weight_hh"].shape
        (32, 8)
    """
    plan = _plan(captioner)
    arrays = {name: np.empty(shape, np.float32) for name, shape in _shapes(plan).items()}
    for assignment in plan:
        joined = np.asarray(assignment.weight)
        joined = joined.T if assignment.transposed else joined
        start, axis = 0, 0 if assignment.stacked else -1
        for part in assignment.sources:
            target = arrays[part.name][..., part.start : part.stop]
            target[...] = np.take(joined, range(start, start + target.shape[axis]), axis)
            start += target.shape[axis]
    return arrays


def _plan(captioner: Captioner) -> list[_Assignment]:
    """Returns where every weight of a captioner comes from."""
    if gates(captioner):
        raise InputError(
            f"{captioner.name} has gates: load published weights before prune, or after strip_pruning"
        )
    plans = {UpDown: _plan_of_up_down, ObjectRelationTransformer: _plan_of_transformer}
    if type(captioner) not in plans:
        names = " and ".join(kind.__name__ for kind in plans)
        raise InputError(f"{type(captioner).__name__} has no published weights: supported are {names}")
    return plans[type(captioner)](captioner)


def _plan_of_up_down(captioner: UpDown) -> list[_Assignment]:
    units, words = captioner.rnn_size, captioner.embedding_size
    image, attention = captioner.attention_lstm_image, captioner.attention_lstm
    language = captioner.language_lstm
    # The attention LSTM's inputs are the language LSTM's hidden state, the image and the word, in this order.
    word = (2 * units, 2 * units + words)
    # Linear, ReLU and dropout layers are numbered consecutively; a single layer has no number.
    *hidden, last = [*captioner.hidden_layers, captioner.output_layer]
    return [
        _vectors(captioner.embedding.embeddings, "embed.0.weight"),
        *_dense(captioner.pooled_embedding, "fc_embed.0"),
        *_dense(captioner.feature_embedding, "att_embed.0"),
        *_dense(captioner.attention_features, "ctx2att"),
        *_dense(captioner.attention_query, "core.attention.h2att"),
        *_dense(captioner.attention_score, "core.attention.alpha_net"),
        _beside(image.kernel, ("core.att_lstm.weight_ih", units, 2 * units)),
        _vectors(image.bias, "core.att_lstm.bias_ih"),
        _beside(
            attention.kernel,
            ("core.att_lstm.weight_ih", 0, units),
            ("core.att_lstm.weight_ih", *word),
            ("core.att_lstm.weight_hh", 0, units),
        ),
        _vectors(attention.bias, "core.att_lstm.bias_hh"),
        _beside(
            language.kernel,
            ("core.lang_lstm.weight_ih", 0, language.kernel.shape[0] - units),
            ("core.lang_lstm.weight_hh", 0, units),
        ),
        _vectors(captioner.language_lstm_bias.bias, "core.lang_lstm.bias_ih"),
        _vectors(language.bias, "core.lang_lstm.bias_hh"),
        *(
            assignment
            for number, layer in enumerate(hidden)
            for assignment in _dense(layer, f"logit.{3 * number}")
        ),
        *_dense(last, f"logit.{3 * len(hidden)}" if hidden else "logit"),
    ]


def _plan_of_transformer(captioner: ObjectRelationTransformer) -> list[_Assignment]:
    def norm(layer: DeviationNorm, name: str):
        return [_vectors(layer.scale, f"{name}.a_2"), _vectors(layer.offset, f"{name}.b_2")]

    def attention(layer: SharedAttention, name: str):
        numbered = enumerate(layer.projections)
        return [assignment for i, dense in numbered for assignment in _dense(dense, f"{name}.linears.{i}")]

    plan = [
        *_dense(captioner.feature_embedding, "att_embed.0"),
        _vectors(captioner.embedding.embeddings, "model.tgt_embed.0.lut.weight"),
        *_dense(captioner.output_layer, "model.generator.proj"),
        *norm(captioner.encoder_norm, "model.encoder.norm"),
        *norm(captioner.decoder_norm, "model.decoder.norm"),
    ]
    # A checkpoint contains a shared layer once for each depth.
    for depth, index in enumerate(captioner.encoder_order):
        layer, name = captioner.encoder_layers[index], f"model.encoder.layers.{depth}"
        heads = [f"{name}.self_attn.WGs.{head}" for head in range(captioner.heads)]
        kernel, bias = layer.relation.kernel, layer.relation.bias
        inputs = tuple(_Columns(f"{head}.weight", 0, kernel.shape[0]) for head in heads)
        plan += [
            *attention(layer.attention, f"{name}.self_attn"),
            _Assignment(kernel, inputs, transposed=True, stacked=True),
            _Assignment(bias, tuple(_Columns(f"{head}.bias", 0, 1) for head in heads)),
            *_dense(layer.feed_forward.inner, f"{name}.feed_forward.w_1"),
            *_dense(layer.feed_forward.outer, f"{name}.feed_forward.w_2"),
            *norm(layer.attention_norm, f"{name}.sublayer.0.norm"),
            *norm(layer.feed_forward_norm, f"{name}.sublayer.1.norm"),
        ]
    for depth, index in enumerate(captioner.decoder_order):
        layer, name = captioner.decoder_layers[index], f"model.decoder.layers.{depth}"
        plan += [
            *attention(layer.attention, f"{name}.self_attn"),
            *attention(layer.source_attention, f"{name}.src_attn"),
            *_dense(layer.feed_forward.inner, f"{name}.feed_forward.w_1"),
            *_dense(layer.feed_forward.outer, f"{name}.feed_forward.w_2"),
            *norm(layer.attention_norm, f"{name}.sublayer.0.norm"),
            *norm(layer.source_norm, f"{name}.sublayer.1.norm"),
            *norm(layer.feed_forward_norm, f"{name}.sublayer.2.norm"),
        ]
    return plan


def _dense(layer: keras.layers.Dense, name: str) -> list[_Assignment]:
    inputs = layer.kernel.shape[0]
    return [_beside(layer.kernel, (f"{name}.weight", 0, inputs)), _vectors(layer.bias, f"{name}.bias")]


def _beside(kernel: keras.Variable, *columns: tuple[str, int, int]) -> _Assignment:
    """Assigns columns of matrices [outputs, inputs] to a kernel [inputs, outputs]."""
    return _Assignment(kernel, tuple(_Columns(*part) for part in columns), transposed=True)


def _vectors(weight: keras.Variable, name: str) -> _Assignment:
    """Assigns a bias or a table, which have the same layout."""
    return _Assignment(weight, (_Columns(name, 0, weight.shape[-1]),))


def _shapes(plan: list[_Assignment]) -> dict[str, tuple[int, ...]]:
    """Returns name -> shape of every published array in a plan."""
    shapes: dict[str, tuple[int, ...]] = {}
    for assignment in plan:
        shape = tuple(assignment.weight.shape)
        rows = shape[1:] if assignment.transposed else shape[:-1]
        if assignment.stacked:
            rows = (rows[0] // len(assignment.sources),)
        for part in assignment.sources:
            columns = max(part.stop, shapes.get(part.name, (0,))[-1])
            shapes[part.name] = (*rows, columns)
    return shapes


def _numbers(arrays: Mapping[str, np.ndarray], name: str, shape: tuple[int, ...]) -> np.ndarray:
    values = np.asarray(arrays[name])
    if values.shape != shape:
        raise InputError(
            f"{name} of the checkpoint has shape {values.shape}, but the captioner has {shape}: make it with"
            " the sizes in the checkpoint's configuration"
        )
    if values.dtype.kind not in "fiub" or not np.isfinite(values).all():
        raise InputError(
            f"{name} of the checkpoint contains NaN, infinity or non-numeric values: give another file"
        )
    return values.astype(np.float32)


def _whole(config: Mapping, key: str, default: int | None = None, least: int = 0) -> int:
    if config.get(key, default) is None:
        raise InputError(f"{key} is missing in the configuration: give a whole number of at least {least}")
    name = f"{key} of the configuration"
    return check_whole(name, config.get(key, default), at_least=least)


def _share(config: Mapping, key: str) -> float:
    return check_number(f"{key} of the configuration", config.get(key, 0.0), at_least=0, below=1)


def _some(names: list[str]) -> str:
    """Returns the first few of many names."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
