"""What a run is: every setting with its type, its default and its meaning."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

Share = Annotated[float, Field(ge=0, lt=1)]
Size = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(gt=0)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", validate_default=True)


class Data(_Section):
    """Pictures and captions. Other keys are options of the source: the arguments of its `load`.

    Attributes:
        kind: `scenes` (drawn by the package), `flickr` (8k or 30k as downloaded), `coco` (MS-COCO's files or
            Karpathy's) or `table` (CSV or JSONL).
        folder: where the pictures lie, relative to the working directory. Scenes are drawn there if absent;
            null draws them in the user's cache.
        minimum_count: a word that occurs less often in the training captions becomes the unknown word.
        vocabulary_size: keep at most this many words, the most frequent ones; null keeps all.
        sentencepiece: a SentencePiece model whose pieces are the vocabulary, in place of the words.
        radix_base: write words as numbers of this base, a token for each digit (radix encoding); null has a
            token for each word.
        max_length: tokens of a caption at most, its end token included; longer captions are cut. With
            radix encoding a word is as many tokens as it has digits.
        features: folder with bottom-up features (`cocobu_att/ID.npy` and so on), in place of an encoder.
        max_regions: regions of an image at most, with `features`; the others are left out.
        region_buckets: batches hold images with similar numbers of regions, and are filled up to the
            smallest of these numbers (or `max_regions`) that fits; empty: to `max_regions`.
        batch_lengths: captions of similar length share a batch, cut to the shortest of these lengths that
            holds it; empty: every batch has `max_length`.
        augmentation: layers of `tfsparsecap.data.augmentation`, by name or as a name with arguments; they
            need images, not cached features.
        cache_folder: where the features of a frozen encoder are cached; null computes them at every step.
        on_bad_record: what a record that cannot be read does: `skip` counts and names it, `fail` stops.
    """

    model_config = ConfigDict(extra="allow")
    kind: Literal["scenes", "flickr", "coco", "table"] = "scenes"
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

    @property
    def options(self) -> dict[str, Any]:
        """The keys that belong to the source."""
        return dict(self.__pydantic_extra__ or {})


class Encoder(_Section):
    """A convolutional network, from an image to a map of features.

    Attributes:
        network: `mobilenet_v1` or `inception_v1`.
        width: of a MobileNet only: channels of each layer as a share of the full network's.
        layer: name of the layer whose output is the map of features, as `tfsparsecap.models` has it. Where it
            is not set, a MobileNet takes `conv_pw_5_relu` and an Inception `Mixed_4f`.
        image_size: side of the square images in pixels.
        weights: null for random weights; for a MobileNet `imagenet`; for an Inception the path of a TF-Slim
            checkpoint, relative to the working directory.
        trainable: train it from the first epoch; a frozen one is run once and its features are cached.
        batch_norm_momentum: of the moving averages of batch normalisation; short runs from scratch need less
            than Keras's 0.99.
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
    def _layer_of_network(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("network") == "inception_v1":
            return {"layer": "Mixed_4f", **given}
        return given


class SoftAttentionModel(_Section):
    """Soft-Attention and its sizes, as in `tfsparsecap.models.SoftAttention`.

    Attributes:
        share_attention: `kv` has attention look at what it scores by (Share-KV).
        feature_size: length of a region's feature, where there is no encoder.
        encoder: what makes features of images; null where `data.features` has them.
    """

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
    """Up-Down and its sizes, as in `tfsparsecap.models.UpDown`; `share_attention`, `feature_size` and
    `encoder` as in `SoftAttentionModel`."""

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
    """Object Relation Transformer and its sizes, as in `tfsparsecap.models.ObjectRelationTransformer`; with
    sharing and `data.radix_base` it is ACORT. `feature_size` and `encoder` as in `SoftAttentionModel`.

    Attributes:
        share_encoder_layers, share_decoder_layers: the layer at each depth, such as [0, 0, 0, 1, 1, 1].
        share_encoder_attention, share_decoder_attention: `kv`, `qk` or null.
        shared_caches: decode as the original implementation does where layers are shared.
    """

    kind: Literal["object_relation_transformer"] = "object_relation_transformer"
    size: Size = 512
    hidden_size: Size = 2048
    layers: Size = 6
    heads: Size = 8
    share_encoder_layers: list[Annotated[int, Field(ge=0)]] | None = None
    share_decoder_layers: list[Annotated[int, Field(ge=0)]] | None = None
    share_encoder_attention: Literal["kv", "qk"] | None = None
    share_decoder_attention: Literal["kv", "qk"] | None = None
    shared_caches: bool = False
    dropout: Share = 0.1
    feature_dropout: Share = 0.1
    feature_size: Size = 2048
    encoder: Encoder | None = Encoder()


#: Settings of a captioner by its `kind`.
MODELS = {
    "soft_attention": SoftAttentionModel,
    "up_down": UpDownModel,
    "object_relation_transformer": TransformerModel,
}


def _kind(given: Any) -> Any:
    """Which of `MODELS` settings are of; Soft-Attention where they do not say."""
    return given.get("kind", "soft_attention") if isinstance(given, dict) else getattr(given, "kind", None)


Model = Annotated[
    Annotated[SoftAttentionModel, Tag("soft_attention")]
    | Annotated[UpDownModel, Tag("up_down")]
    | Annotated[TransformerModel, Tag("object_relation_transformer")],
    Discriminator(_kind),
]


class Pruning(_Section):
    """How the captioner is pruned while it trains. Keys that are not listed are options of the method.

    Attributes:
        method: `supermask`; `supermask_loss`, SMP as in the papers; `gradual`; `magnitude`, all at once;
            `lottery`; `snip`, before the training; `relevance`, `l1` or `l2`, which prune as long as a score
            of the validation is good enough; or `frozen`, which keeps zeros of `training.start_from`.
        sparsity: share of the weights that is gone in the end; at most, with those that go by a score.
        block_shape: weights that are kept or pruned together, in (inputs, outputs).
        encoder: true prunes the encoder as well, where it is trained from the start. A, B and C are the SMP
            paper's schemes for one that is frozen until `training.fine_tune`: A prunes encoder and decoder
            while the decoder is trained, and fine-tunes what is left of both; B prunes both in fine-tuning;
            C prunes the decoder while it is trained, the encoder in fine-tuning.
    """

    model_config = ConfigDict(extra="allow")
    method: Literal[
        "supermask",
        "supermask_loss",
        "gradual",
        "lottery",
        "magnitude",
        "snip",
        "relevance",
        "l1",
        "l2",
        "frozen",
    ] = "supermask"
    sparsity: Share = 0.9
    block_shape: tuple[Size, Size] = (1, 1)
    encoder: bool | Literal["A", "B", "C"] = False

    @property
    def options(self) -> dict[str, Any]:
        """The keys that belong to the method."""
        return dict(self.__pydantic_extra__ or {})


class FineTune(_Section):
    """Epochs after the others in which the encoder learns too, from images instead of cached features.

    Attributes:
        epochs: how many; 0 for none.
        learning_rate: of Adam, for decoder and encoder.
        batch_size: captions a step; null keeps `training.batch_size`.
    """

    epochs: Annotated[int, Field(ge=0)] = 0
    learning_rate: Rate = 1e-5
    batch_size: Size | None = None


class SCST(_Section):
    """Self-critical sequence training: captions are drawn, and rewarded for being like people's.

    Attributes:
        samples: captions drawn of an image at each step.
        baseline: what a caption's reward is compared with: the mean of the image's `others`, of `all`, or
            that of the `greedy` caption.
        cider_d, bleu_4: weights of the two in the reward; CIDEr-D goes from 0 to 10, BLEU-4 from 0 to 1.
        count_end: the end of a caption counts as a word of it, so that one that breaks off is no better.
        temperature: of the draw.
    """

    samples: Size = 5
    baseline: Literal["others", "all", "greedy"] = "others"
    cider_d: Annotated[float, Field(ge=0)] = 1.0
    bleu_4: Annotated[float, Field(ge=0)] = 0.0
    count_end: bool = False
    temperature: Rate = 1.0


class Training(_Section):
    """The optimisation.

    Attributes:
        start_from: run folder of a finished training whose weights and vocabulary this one starts with, such
            as a dense one that is to be pruned; null starts with random weights.
        keep_initial: keep the weights that the run starts with, in `checkpoints/initial.npz`, for a lottery
            ticket to be drawn from it.
        epochs: times that every caption is seen, fine-tuning not counted.
        batch_size: captions a step, over all devices together.
        learning_rate: of Adam, at the start.
        schedule: `constant`; `cosine` down to `final_learning_rate`; or `noam`, which falls with the square
            root of the steps from where the warm-up ends.
        warmup_steps: the first steps of `cosine` and `noam`, in which the rate rises from 0 to
            `learning_rate`.
        adam_beta_2, adam_epsilon: of Adam.
        weight_decay: decoupled, as in AdamW; gates and biases are left out.
        clip_norm: largest norm of all gradients together; null for none.
        clip_value: largest size of a single gradient; null for none.
        label_smoothing: share of the probability that is spread over all words.
        precision: `float32`, or `mixed_bfloat16` for devices that have it.
        distribution: `default` (one device) or `mirrored` (all devices of this machine).
        validation_images: pictures captioned after each epoch to compute CIDEr; 0 for none, null for all.
        early_stopping: epochs without a better validation CIDEr that end the training; null never does.
        restore_best: end with the weights of the best validation CIDEr at the final sparsity, not the last;
            with `pruning.encoder=A`, `B` or `C` the best of fine-tuning.
        fine_tune: later epochs in which the encoder learns too.
        scst: train the captioner of `start_from` on rewards, in all epochs; a step then takes `batch_size`
            images, an epoch each image once. null trains on people's captions.
    """

    start_from: str | None = None
    keep_initial: bool = False
    epochs: Size = 2
    batch_size: Size = 32
    learning_rate: Rate = 3e-3
    schedule: Literal["constant", "cosine", "noam"] = "cosine"
    final_learning_rate: Annotated[float, Field(ge=0)] = 1e-5
    warmup_steps: Annotated[int, Field(ge=0)] = 100
    adam_beta_2: Share = 0.999
    adam_epsilon: Rate = 1e-7
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    clip_norm: Rate | None = 1.0
    clip_value: Rate | None = None
    label_smoothing: Share = 0.0
    precision: Literal["float32", "mixed_bfloat16"] = "float32"
    distribution: Literal["default", "mirrored"] = "default"
    validation_images: Annotated[int, Field(ge=0)] | None = 200
    early_stopping: Size | None = None
    restore_best: bool = False
    fine_tune: FineTune = FineTune()
    scst: SCST | None = None


class Decoding(_Section):
    """How captions are searched for when a run is evaluated: `beam` 1 is greedy."""

    beam: Size = 1
    batch_size: Size = 64


class Config(_Section):
    """A whole run. `Config()` is the quickstart: drawn scenes, a small captioner, 90 % pruned.

    Attributes:
        name: the run's folder is `runs/NAME`.
        seed: of everything random.
        data, model, training, decoding: see there; `model.kind` is one of `MODELS`.
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
