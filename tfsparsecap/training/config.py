"""What a run is: every setting with its type, its default and its meaning."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Share = Annotated[float, Field(ge=0, lt=1)]
Size = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(gt=0)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", validate_default=True)


class Data(_Section):
    """Pictures and captions. Other keys are options of the source: the arguments of its `load`.

    Attributes:
        kind: `scenes` (drawn by the package), `flickr` (8k or 30k as downloaded) or `table` (CSV or JSONL).
        folder: where the pictures lie, relative to the working directory. Scenes are drawn there if absent;
            null draws them in the user's cache.
        minimum_count: a word that occurs less often in the training captions becomes the unknown word.
        vocabulary_size: keep at most this many words, the most frequent ones; null keeps all.
        max_length: tokens of a caption at most, its end token included; longer captions are cut.
        batch_lengths: captions of similar length share a batch, cut to the shortest of these lengths that
            holds it; empty: every batch has `max_length`.
        augmentation: layers of `tfsparsecap.data.augmentation`, by name or as a name with arguments; they
            need images, not cached features.
        cache_folder: where the features of a frozen encoder are cached; null computes them at every step.
        on_bad_record: what a record that cannot be read does: `skip` counts and names it, `fail` stops.
    """

    model_config = ConfigDict(extra="allow")
    kind: Literal["scenes", "flickr", "table"] = "scenes"
    folder: str | None = None
    minimum_count: Size = 1
    vocabulary_size: Size | None = None
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
    """MobileNet-V1, from an image to a map of features.

    Attributes:
        width: channels of each layer as a share of the full network's.
        layer: name of the `keras.applications` layer whose output is the map of features.
        image_size: side of the square images in pixels.
        weights: `imagenet`, or null for random weights.
        trainable: train it from the first epoch; a frozen one is run once and its features are cached.
        batch_norm_momentum: of the moving averages of batch normalisation; short runs from scratch need less
            than Keras's 0.99.
    """

    width: Rate = 0.75
    layer: str = "conv_pw_5_relu"
    image_size: Annotated[int, Field(ge=32)] = 48
    weights: Literal["imagenet"] | None = None
    trainable: bool = True
    batch_norm_momentum: Share = 0.9


class Model(_Section):
    """The captioner and its sizes, as in `tfsparsecap.models.SoftAttention`."""

    kind: Literal["soft_attention"] = "soft_attention"
    cell: Literal["lstm", "gru"] = "lstm"
    embedding_size: Size = 64
    rnn_size: Size = 256
    attention_size: Size = 128
    dropout: Share = 0.0
    encoder: Encoder = Encoder()


class Pruning(_Section):
    """How the captioner is pruned while it trains. Keys that are not listed are options of the method.

    Attributes:
        method: `supermask`, or `supermask_loss` as in the papers.
        sparsity: share of the weights that is gone in the end.
        block_shape: weights that are kept or pruned together, in (inputs, outputs).
        encoder: prune the encoder as well, where it is trained from the start.
    """

    model_config = ConfigDict(extra="allow")
    method: Literal["supermask", "supermask_loss"] = "supermask"
    sparsity: Share = 0.9
    block_shape: tuple[Size, Size] = (1, 1)
    encoder: bool = False

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


class Training(_Section):
    """The optimisation.

    Attributes:
        start_from: run folder of a finished training whose weights and vocabulary this one starts with, such
            as a dense one that is to be pruned; null starts with random weights.
        epochs: times that every caption is seen, fine-tuning not counted.
        batch_size: captions a step, over all devices together.
        learning_rate: of Adam, at the start.
        schedule: `constant`, or `cosine` down to `final_learning_rate`.
        warmup_steps: the first steps of `cosine`, in which the rate rises from 0.
        weight_decay: decoupled, as in AdamW; gates and biases are left out.
        clip_norm: largest norm of all gradients together; null for none.
        clip_value: largest size of a single gradient; null for none.
        label_smoothing: share of the probability that is spread over all words.
        precision: `float32`, or `mixed_bfloat16` for devices that have it.
        distribution: `default` (one device) or `mirrored` (all devices of this machine).
        validation_images: pictures captioned after each epoch to compute CIDEr; 0 for none, null for all.
        early_stopping: epochs without a better validation CIDEr that end the training; null never does.
        restore_best: end with the weights of the best validation CIDEr at the final sparsity, not the last.
        fine_tune: later epochs in which the encoder learns too.
    """

    start_from: str | None = None
    epochs: Size = 2
    batch_size: Size = 32
    learning_rate: Rate = 3e-3
    schedule: Literal["constant", "cosine"] = "cosine"
    final_learning_rate: Annotated[float, Field(ge=0)] = 1e-5
    warmup_steps: Annotated[int, Field(ge=0)] = 100
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


class Decoding(_Section):
    """How captions are searched for when a run is evaluated: `beam` 1 is greedy."""

    beam: Size = 1
    batch_size: Size = 64


class Config(_Section):
    """A whole run. `Config()` is the quickstart: drawn scenes, a small captioner, 90 % pruned.

    Attributes:
        name: the run's folder is `runs/NAME`.
        seed: of everything random.
        data, model, training, decoding: see there.
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
    model: Model = Model()
    pruning: Pruning | None = Pruning()
    training: Training = Training()
    decoding: Decoding = Decoding()
