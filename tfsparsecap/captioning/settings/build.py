"""Builds the data set, vocabulary, captioner and encoder that settings describe."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras

from tfsparsecap.captioning import data as sources
from tfsparsecap.captioning import models
from tfsparsecap.captioning.data.radix import RadixTokenizer
from tfsparsecap.captioning.data.records import CaptionData, Record
from tfsparsecap.captioning.data.region_features import RegionFeatures
from tfsparsecap.captioning.data.sentencepiece import SentencePieceTokenizer
from tfsparsecap.captioning.data.tokenizers import Tokenizer, WordTokenizer
from tfsparsecap.captioning.encoder_catalogue import KERAS_HUB, LITE
from tfsparsecap.captioning.settings.contradictions import data_options
from tfsparsecap.captioning.settings.precision import keras_policy
from tfsparsecap.captioning.settings.schema import Config, Encoder, TransformerModel
from tfsparsecap.core.saved_models import load_model
from tfsparsecap.errors import InputError, error_prefix


def load_data(config: Config) -> CaptionData:
    """The data set of a run; scenes are generated if their folder does not exist yet.

    Raises:
        InputError: the folder is missing or has another layout, or a photograph is in two splits, see
            `tfsparsecap.captioning.data`.
    """
    data = config.data
    options = data_options(config)
    if data.kind != "scenes":
        options["on_bad_record"] = data.on_bad_record
    if data.kind in ("coco", "table") and config.model.encoder is None:
        options["images"] = "ignore"
    folder = None if data.folder is None else Path(data.folder).expanduser()
    return sources.load(data.kind, folder, **options)


def make_tokenizer(config: Config, data: CaptionData) -> Tokenizer:
    """The vocabulary of a run: words of the training captions, or a given SentencePiece model.

    Raises:
        InputError: the vocabulary is empty, or the SentencePiece model cannot be read.
    """
    settings = config.data
    tokenizer: SentencePieceTokenizer | WordTokenizer
    if settings.sentencepiece is not None:
        tokenizer = SentencePieceTokenizer.load(Path(settings.sentencepiece).expanduser())
    else:
        records = data.split("train")
        if not records:
            bad = data.skipped
            first = f"; the first of {len(bad)} skipped records: {bad[0]}" if bad else ""
            raise InputError(
                f"{data.name} has no image in the split train: assign images to it, or give no splits{first}"
            )
        captions = [caption for record in records for caption in record.captions]
        tokenizer = WordTokenizer.from_captions(captions, settings.minimum_count, settings.vocabulary_size)
    if settings.radix_base is None:
        return tokenizer
    radix = RadixTokenizer(tokenizer, settings.radix_base)
    if settings.max_length <= radix.digits:
        raise InputError(
            f"data.max_length is {settings.max_length}, but one word takes {radix.digits} digits of base"
            f" {settings.radix_base}: allow for the digits of all words of a caption and its end token"
        )
    return radix


def objects_of(config: Config, data: CaptionData) -> tuple[str, ...]:
    """Names of the objects that a run's captioner predicts: all labels of the training split, in order."""
    if not config.training.object_weight:
        return ()
    return tuple(sorted({name for record in data.split("train") for name in record.labels or ()}))


def make_captioner(
    config: Config,
    vocabulary: Tokenizer | int,
    *,
    objects: Sequence[str] = (),
    precision: str | None = None,
    weights: bool = True,
) -> models.Captioner:
    """The captioner with its encoder.

    Args:
        vocabulary: the tokenizer; or the number of tokens, special ones included, with the special ids of a
            word vocabulary.
        objects: names of the objects that it predicts, see `objects_of`.
        precision: Keras dtype policy; None takes `training.precision`.
        weights: load the encoder's published weights; False for a model whose weights are set afterwards.

    Raises:
        InputError: the sizes do not fit together.
    """
    model, policy = config.model, precision or keras_policy(config.training.precision)
    sizes = model.model_dump(exclude={"kind", "encoder"})
    if isinstance(vocabulary, Tokenizer):
        sizes |= {name: getattr(vocabulary, name) for name in ("start_id", "end_id", "pad_id")}
    if isinstance(model, TransformerModel):
        sizes["max_length"] = config.data.max_length
    encoder = None
    if model.encoder is not None:
        sizes["feature_size"] = None  # the encoder defines it
        encoder = make_encoder(model.encoder, policy, weights)
    size = vocabulary if isinstance(vocabulary, int) else len(vocabulary)
    captioner = getattr(models, model.captioner)
    with error_prefix(f"model.kind={model.kind}"):
        return captioner(size, **sizes, encoder=encoder, objects=objects, dtype=policy, name="captioner")


def make_encoder(settings: Encoder, policy: str, weights: bool = True) -> keras.layers.Layer:
    """The encoder of a captioner.

    Args:
        policy: Keras dtype policy.
        weights: load published weights, if the settings name some.

    Raises:
        InputError: there is no such layer or width, or the weights cannot be loaded.
    """
    if settings.weights is not None and Path(settings.weights).expanduser().is_dir():
        return _encoder_of_run(settings, policy)
    if settings.slimmed is None:
        return _whole_encoder(settings, policy, weights)
    path = Path(settings.slimmed).expanduser()
    encoder = _whole_encoder(settings, policy, weights=False)
    with error_prefix("model.encoder.slimmed"):
        if not path.is_file():
            raise InputError(f"there is no file {path}: give the encoder.keras of a slimmed run, or null")
        backbone = load_model(path, "copy it again, or slim the run again")
        encoder.replace(backbone)
    return encoder


def _encoder_of_run(settings: Encoder, policy: str) -> Any:
    """The encoder of a finished run, which `weights` names, with its weights."""
    assert settings.weights is not None
    with error_prefix("model.encoder.weights"):
        path = Path(settings.weights).expanduser() / "model.keras"
        if not path.is_file():
            raise InputError(f"there is no {path}: finish that run, or give another one")
        captioner = load_model(path, "copy it again, or train that run again")
        trained: Any = getattr(captioner, "encoder", None)
        made = _whole_encoder(settings.model_copy(update={"weights": None}), policy, weights=False)
        own = {name: getattr(settings, name) for name in ("trainable", "frozen_until", "batch_norm_momentum")}
        same = ("layer", "image_size", "features_shape")
        if type(trained) is not type(made) or any(
            getattr(trained, one) != getattr(made, one) for one in same
        ):
            raise InputError(f"{path} has another encoder: set the same network, layer and image size")
        config = {**trained.get_config(), **own, "dtype": made.dtype_policy, "name": "encoder"}
        encoder = type(trained).from_config(config)
        encoder.set_weights(trained.get_weights())
        return encoder


def _whole_encoder(settings: Encoder, policy: str, weights: bool) -> Any:
    arguments: dict[str, Any] = settings.model_dump(exclude={"network", "width", "slimmed"})
    arguments |= {"weights": settings.weights if weights else None, "dtype": policy, "name": "encoder"}
    with error_prefix("model.encoder"):
        network = settings.network
        if network == "mobilenet_v1":
            return models.MobileNetV1Encoder(settings.width, **arguments)
        if network == "inception_v1":
            return models.InceptionV1Encoder(**arguments)
        if network == "tiny_vit_5m":
            # Also without weights, because it decides which weights there are.
            batch_norm = not str(settings.weights).endswith(".onnx")
            return models.TinyViTEncoder(**arguments, batch_norm=batch_norm)
        if network.startswith(LITE):
            return models.EfficientNetLiteEncoder(int(network.removeprefix(LITE)), **arguments)
        if network.startswith(KERAS_HUB):
            return models.KerasHubEncoder(network.removeprefix(KERAS_HUB), **arguments)
        return models.ApplicationsEncoder(network, **arguments)


def region_features(config: Config, records: Sequence[Record], *, progress: bool = True) -> RegionFeatures:
    """Index of the records' files in `data.features`.

    Raises:
        InputError: the folder is missing or has another layout.
    """
    settings = config.data
    if settings.features is None:
        raise InputError(
            "the captioner has no encoder, and the folder of its region features is not known: set"
            " data.features=FOLDER (in the run's config.yaml, or with --features)"
        )
    folder = Path(settings.features).expanduser()
    return RegionFeatures(
        folder,
        [record.image_id for record in records],
        feature_size=config.model.feature_size,
        buckets=settings.region_buckets,
        max_regions=settings.max_regions,
        on_bad_record=settings.on_bad_record,
        need_boxes=config.model.kind == "object_relation_transformer",
        # Without this folder, the feature of the whole image is the mean of its region features.
        need_pooled=config.model.kind == "up_down" and (folder / "cocobu_fc").is_dir(),
        progress=progress,
    )
