"""All settings of a run, with their types, defaults and meanings."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

from tfsparsecap.errors import InputError

Share = Annotated[float, Field(ge=0, lt=1)]
Size = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Rate = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]

#: Schemes of encoder pruning in section 5.4 of the SMP paper, see `Pruning.encoder`.
ENCODER_SCHEMES = ("A", "B", "C")


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", validate_default=True)


class _OpenSection(_Section):
    """A section whose other keys are options of something that is chosen by name."""

    model_config = ConfigDict(extra="allow")

    @property
    def options(self) -> dict[str, Any]:
        """The keys that are not settings of the section itself."""
        return dict(self.__pydantic_extra__ or {})


class Data(_OpenSection):
    """Images and captions. Other keys are options of the source, that is arguments of its `load` function.

    Attributes:
        kind: `scenes` (synthetic scenes that this package generates), `flickr` (Flickr8k or Flickr30k as
            downloaded), `coco` (MS-COCO's own or Karpathy's files) or `table` (CSV or JSONL).
        folder: folder of the data set, relative to the working directory. Scenes are generated there if it
            does not exist; null generates them in the user's cache folder.
        minimum_count: words that occur less often in the training captions become the unknown token.
        vocabulary_size: maximum number of words, the most frequent first; null for no limit.
        sentencepiece: path of a SentencePiece model that defines the vocabulary, instead of words.
        radix_base: encode each word as digits of this base, one token per digit (radix encoding); null uses
            one token per word.
        max_length: maximum number of tokens in a caption, the end token included; longer captions are cut.
            With radix encoding each digit is a token.
        features: folder of bottom-up region features (`cocobu_att/ID.npy` and so on); needs
            `model.encoder=null`.
        max_regions: maximum number of regions per image with `features`; further regions are ignored.
        region_buckets: batches contain images with similar numbers of regions, padded to the smallest of
            these numbers (or `max_regions`) that is large enough; empty pads to `max_regions`.
        batch_lengths: batches contain captions of similar length, cut to the smallest of these lengths that
            is large enough; empty gives every batch `max_length` tokens.
        augmentation: layers of `tfsparsecap.data.augmentation`, given by name or by name with arguments.
            They need images, so they exclude cached features.
        cache_folder: folder for the cached features of a frozen encoder; null computes them at every step.
        on_bad_record: what happens to records that cannot be read: `skip` lists them in `skipped.txt`,
            `fail` stops the run.
    """

    kind: str = "scenes"
    folder: str | None = None
    minimum_count: Size = 1
    vocabulary_size: Size | None = None
    sentencepiece: str | None = None
    radix_base: Annotated[int, Field(ge=2)] | None = None
    features: str | None = None
    max_regions: Size = 100
    region_buckets: list[Size] = [36, 50, 75]
    max_length: Annotated[int, Field(ge=2)] = 15
    batch_lengths: list[Size] = []
    augmentation: list[str | dict[str, Any]] = []
    cache_folder: str | None = "runs/_cache"
    on_bad_record: Literal["skip", "fail"] = "skip"


class Encoder(_Section):
    """A convolutional network that turns an image into a feature map.

    Attributes:
        network: `mobilenet_v1` or `inception_v1`.
        width: width multiplier of a MobileNet; an Inception has none.
        layer: name of the layer whose output is the feature map, as in `tfsparsecap.models`. The default is
            `conv_pw_5_relu` for a MobileNet and `Mixed_4f` for an Inception.
        image_size: height and width of the input images in pixels.
        weights: null for random weights; `imagenet` for a MobileNet's published weights; for an Inception
            the path of a TF-Slim checkpoint, relative to the working directory.
        trainable: train the encoder from the first epoch. A frozen encoder is run once per image and its
            features are cached.
        batch_norm_momentum: of the moving averages of batch normalisation. Short runs from scratch need a
            lower value than Keras's default of 0.99.
    """

    network: Literal["mobilenet_v1", "inception_v1"] = "mobilenet_v1"
    width: Rate = 0.75
    layer: str = "conv_pw_5_relu"
    image_size: Annotated[int, Field(ge=32)] = 48
    weights: str | None = None
    trainable: bool = True
    batch_norm_momentum: Share = 0.9

    @model_validator(mode="before")
    @classmethod
    def _default_layer(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("network") == "inception_v1":
            return {"layer": "Mixed_4f", **given}
        return given

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.network == "mobilenet_v1" and self.weights not in (None, "imagenet"):
            raise InputError(
                f"model.encoder.weights is {self.weights!r}: use imagenet or null; checkpoints are supported"
                " with model.encoder.network=inception_v1"
            )
        if self.network == "inception_v1" and self.weights == "imagenet":
            raise InputError(
                "model.encoder.weights is 'imagenet', which is for mobilenet_v1: give the path of TF-Slim's"
                " inception_v1.ckpt, or null"
            )
        if self.network == "inception_v1" and self.width != type(self).model_fields["width"].default:
            raise InputError(
                f"model.encoder.width is {self.width}, but an Inception has no width multiplier: remove it,"
                " or set model.encoder.network=mobilenet_v1"
            )
        return self


class SoftAttentionModel(_Section):
    """Soft-Attention, with the sizes of `tfsparsecap.models.SoftAttention`.

    Attributes:
        share_attention: `kv` uses the attention keys as values, too (Share-KV).
        feature_size: length of a region feature if there is no encoder.
        encoder: computes the features of images; null with `data.features`.
    """

    captioner: ClassVar = "SoftAttention"
    kind: Literal["soft_attention"] = "soft_attention"
    cell: Literal["lstm", "gru"] = "lstm"
    embedding_size: Size = 64
    rnn_size: Size = 256
    attention_size: Size = 128
    share_attention: Literal["kv"] | None = None
    dropout: Share = 0.0
    feature_size: Size = 2048
    encoder: Encoder | None = Encoder()


class UpDownModel(_Section):
    """Up-Down, with the sizes of `tfsparsecap.models.UpDown`; `share_attention`, `feature_size` and `encoder`
    are as in `SoftAttentionModel`."""

    captioner: ClassVar = "UpDown"
    kind: Literal["up_down"] = "up_down"
    embedding_size: Size = 1000
    rnn_size: Size = 1000
    attention_size: Size = 512
    output_layers: Size = 1
    share_attention: Literal["kv"] | None = None
    dropout: Share = 0.5
    feature_size: Size = 2048
    encoder: Encoder | None = Encoder()


class TransformerModel(_Section):
    """Object Relation Transformer, with the sizes of `tfsparsecap.models.ObjectRelationTransformer`.

    With shared layers and `data.radix_base` it is ACORT. `feature_size` and `encoder` are as in
    `SoftAttentionModel`.

    Attributes:
        share_encoder_layers, share_decoder_layers: index of the layer used at each depth, such as
            [0, 0, 0, 1, 1, 1]; null uses a layer of its own at each depth.
        share_encoder_attention, share_decoder_attention: projections that attention shares: `kv`, `qk` or
            null.
        shared_caches: decode like the original implementation when layers are shared.
    """

    captioner: ClassVar = "ObjectRelationTransformer"
    kind: Literal["object_relation_transformer"] = "object_relation_transformer"
    size: Size = 512
    hidden_size: Size = 2048
    layers: Size = 6
    heads: Size = 8
    share_encoder_layers: list[Count] | None = None
    share_decoder_layers: list[Count] | None = None
    share_encoder_attention: Literal["kv", "qk"] | None = None
    share_decoder_attention: Literal["kv", "qk"] | None = None
    shared_caches: bool = False
    dropout: Share = 0.1
    feature_dropout: Share = 0.1
    feature_size: Size = 2048
    encoder: Encoder | None = Encoder()


#: The captioners: `model.kind` -> its settings, whose `captioner` names the class in `tfsparsecap.models`.
MODELS = {
    settings.model_fields["kind"].default: settings
    for settings in (SoftAttentionModel, UpDownModel, TransformerModel)
}


def _kind(given: Any) -> Any:
    """The `model.kind` of given settings; Soft-Attention by default."""
    return given.get("kind", "soft_attention") if isinstance(given, dict) else getattr(given, "kind", None)


Model = Annotated[
    Annotated[SoftAttentionModel, Tag("soft_attention")]
    | Annotated[UpDownModel, Tag("up_down")]
    | Annotated[TransformerModel, Tag("object_relation_transformer")],
    Discriminator(_kind),
]


class Pruning(_OpenSection):
    """How the captioner is pruned during training. Other keys are options of the pruning method.

    Attributes:
        method: name of a pruning method, see docs/pruning.md: `supermask`; `supermask_loss` (SMP as
            published); `gradual`; `magnitude` (one-shot); `lottery`; `snip` (before training); `relevance`,
            `l1` and `l2` (prune as long as a validation score is good enough); or `frozen` (keeps the zeros
            of `training.start_from`).
        sparsity: final share of zero weights; the maximum for methods that follow a validation score.
        block_shape: (inputs, outputs) of the blocks of weights that are kept or removed together.
        encoder: true prunes an encoder that is trained from the start, too. A, B and C are the SMP paper's
            schemes for an encoder that is frozen until `training.fine_tune`: A prunes encoder and decoder
            while the decoder is trained, then fine-tunes the remaining weights; B prunes both during
            fine-tuning; C prunes the decoder while it is trained and the encoder during fine-tuning.
    """

    method: str = "supermask"
    sparsity: Share = 0.9
    block_shape: tuple[Size, Size] = (1, 1)
    encoder: bool | Literal["A", "B", "C"] = False


class FineTune(_Section):
    """Final epochs in which the encoder is trained, too, on images instead of cached features.

    Attributes:
        epochs: number of epochs; 0 for none.
        learning_rate: of Adam, for decoder and encoder, constant.
        batch_size: captions per step; null uses `training.batch_size`.
    """

    epochs: Count = 0
    learning_rate: Rate = 1e-5
    batch_size: Size | None = None


class SCST(_Section):
    """Self-critical sequence training: captions are sampled and rewarded by their similarity to references.

    Attributes:
        samples: captions sampled per image and step.
        baseline: what a caption's reward is compared with: the mean reward of the image's other captions
            (`others`), of all its captions (`all`), or the reward of the `greedy` caption.
        cider_d, bleu_4: weights of CIDEr-D (0 to 10) and BLEU-4 (0 to 1) in the reward.
        count_end: count the end token as a word, so that incomplete captions score lower.
        temperature: of sampling.
    """

    samples: Size = 5
    baseline: Literal["others", "all", "greedy"] = "others"
    cider_d: NotNegative = 1.0
    bleu_4: NotNegative = 0.0
    count_end: bool = False
    temperature: Rate = 1.0

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.cider_d and not self.bleu_4:
            raise InputError("training.scst has no reward: set cider_d or bleu_4 above 0")
        if self.samples < 2 and self.baseline != "greedy":
            raise InputError(
                f"training.scst.samples is {self.samples}, but the baseline is the mean of several captions:"
                " sample 2 or more, or set training.scst.baseline=greedy"
            )
        return self


class Training(_Section):
    """The optimisation.

    Attributes:
        start_from: folder of a finished run whose weights and vocabulary this run starts with, for example a
            dense run that is to be pruned; null starts with random weights.
        keep_initial: save the initial weights in `checkpoints/initial.npz`, so that lottery tickets can be
            drawn from this run.
        epochs: training epochs, excluding fine-tuning.
        batch_size: captions per step, over all devices together.
        learning_rate: peak learning rate of Adam.
        schedule: `constant`; `cosine` (decays to `final_learning_rate`); or `noam` (decays with the inverse
            square root of the step after the warm-up).
        final_learning_rate: learning rate at the end of the `cosine` schedule.
        warmup_steps: first steps of `cosine` and `noam`, in which the learning rate rises linearly from 0.
        adam_beta_2, adam_epsilon: of Adam.
        weight_decay: decoupled weight decay as in AdamW; gates and biases are excluded.
        clip_norm: maximum global norm of the gradients; null for no limit.
        clip_value: maximum absolute value of each gradient; null for no limit.
        label_smoothing: share of the target probability that is spread over all tokens.
        precision: `float32`, or `mixed_bfloat16` for devices that support it.
        distribution: `default` (one device) or `mirrored` (all devices of this machine).
        validation_images: number of images captioned after each epoch to compute CIDEr and BLEU-4; 0 for
            none, null for all.
        early_stopping: stop after this many epochs without a better validation CIDEr; null never stops.
        restore_best: end with the weights of the epoch with the best validation CIDEr at the final sparsity
            instead of the last epoch; with `pruning.encoder=A`, `B` or `C` the best epoch of fine-tuning.
        fine_tune: final epochs in which the encoder is trained, too.
        scst: train the captioner of `start_from` on rewards in all epochs, with `batch_size` images per step
            and each image once per epoch; null trains on reference captions.
    """

    start_from: str | None = None
    keep_initial: bool = False
    epochs: Size = 2
    batch_size: Size = 32
    learning_rate: Rate = 3e-3
    schedule: Literal["constant", "cosine", "noam"] = "cosine"
    final_learning_rate: NotNegative = 1e-5
    warmup_steps: Count = 100
    adam_beta_2: Share = 0.999
    adam_epsilon: Rate = 1e-7
    weight_decay: NotNegative = 0.0
    clip_norm: Rate | None = 1.0
    clip_value: Rate | None = None
    label_smoothing: Share = 0.0
    precision: Literal["float32", "mixed_bfloat16"] = "float32"
    distribution: Literal["default", "mirrored"] = "default"
    validation_images: Count | None = 200
    early_stopping: Size | None = None
    restore_best: bool = False
    fine_tune: FineTune = FineTune()
    scst: SCST | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.clip_norm and self.clip_value:
            raise InputError(
                "training.clip_norm (1.0 by default) and training.clip_value are both set: set one of them to"
                " null"
            )
        return self


class Decoding(_Section):
    """How captions are searched when a run is evaluated: beam size (1 is greedy) and images per batch."""

    beam: Size = 1
    batch_size: Size = 64


class Config(_Section):
    """All settings of a run. `Config()` is the quickstart: synthetic scenes, a small captioner, 90 % pruned.

    Attributes:
        name: name of the run's folder, `runs/NAME`.
        seed: of all random numbers.
        data, model, training, decoding: see the sections; `model.kind` is one of `MODELS`.
        pruning: null trains a dense model.

    Example:
        >>> Config(training={"epochs": 3}).training.batch_size
        32
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.\-]*$", coerce_numbers_to_str=True)] = (
        "quickstart"
    )
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 1
    data: Data = Data()
    model: Model = SoftAttentionModel()
    pruning: Pruning | None = Pruning()
    training: Training = Training()
    decoding: Decoding = Decoding()

    @model_validator(mode="after")
    def _check(self) -> Self:
        encoder, fine_tune = self.model.encoder, self.training.fine_tune.epochs
        if self.data.features is not None and encoder is not None:
            raise InputError(
                "data.features and model.encoder are both set: set model.encoder=null to train on features,"
                " or data.features=null to train on images"
            )
        if encoder is None and (self.data.augmentation or fine_tune):
            raise InputError(
                "data.augmentation and training.fine_tune need images, but there is no encoder: remove them"
            )
        scheme = self.pruning.encoder if self.pruning is not None else False
        if scheme in ENCODER_SCHEMES and (encoder is None or encoder.trainable or not fine_tune):
            raise InputError(
                f"pruning.encoder={scheme} needs an encoder that is frozen until fine-tuning: set"
                " model.encoder.trainable=false and training.fine_tune.epochs"
            )
        return self
