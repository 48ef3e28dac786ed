"""The sections `training` and `decoding` of the settings, and what all sections have in common."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from tfsparsecap.captioning.search.search_options import FUNCTION_WORDS, LARGEST_BEAM, SearchOptions
from tfsparsecap.captioning.settings.yaml_values import value_of

#: For types that are not texts: the values of numbers and booleans in YAML.
AsValue = BeforeValidator(value_of)
Share = Annotated[float, Field(ge=0, lt=1), AsValue]
Size = Annotated[int, Field(ge=1, lt=2**31), AsValue]
Count = Annotated[int, Field(ge=0, lt=2**31), AsValue]
Rate = Annotated[float, Field(gt=0), AsValue]
NotNegative = Annotated[float, Field(ge=0), AsValue]
# A single text need not be in a list.
Texts = Annotated[list[str], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]
# A single number need not be in a list.
Sizes = Annotated[
    list[Size], BeforeValidator(lambda value: [value] if isinstance(value_of(value), int) else value)
]
#: The values of keys that are chosen by name, such as options.
Options = dict[str, Annotated[Any, AsValue]]


class Section(BaseModel):
    """A section without unknown keys."""

    model_config = ConfigDict(extra="forbid", validate_default=True, allow_inf_nan=False)


class OpenSection(Section):
    """A section that also takes the options of something that is chosen by name.

    Attributes:
        texts: names of options that are texts.
    """

    model_config = ConfigDict(extra="allow")
    texts: ClassVar[tuple[str, ...]] = ()

    @model_validator(mode="before")
    @classmethod
    def _values(cls, settings: Any) -> Any:
        if not isinstance(settings, dict):
            return settings
        convert = {**dict.fromkeys(cls.model_fields, lambda value: value), **dict.fromkeys(cls.texts, _text)}
        return {key: convert.get(key, value_of)(value) for key, value in settings.items()}

    @property
    def options(self) -> dict[str, Any]:
        """The keys that are not settings of the section itself."""
        return dict(self.__pydantic_extra__ or {})


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, str) else value_of(value)


# null is an empty list.
_Teachers = Annotated[Texts, BeforeValidator(lambda value: [] if value is None else value)]


class FineTune(Section):
    """Final epochs that also train the encoder, on images instead of cached features.

    Attributes:
        epochs: number of epochs; 0 for none.
        learning_rate: learning rate of Adam, for decoder and encoder.
        schedule: `constant`, or `cosine` (decays to `training.final_learning_rate`).
        batch_size: captions per step; null uses `training.batch_size`.
    """

    epochs: Count = 0
    learning_rate: Rate = 1e-5
    schedule: Literal["constant", "cosine"] = "constant"
    batch_size: Size | None = None


class SlimSettings(Section):
    """Structured pruning of an image encoder that is trained: its least important channels are removed.

    The channels are removed in several iterations in the first half of the epochs, with fine-tuning after
    each (RTIC, iterative channel pruning). Momenta and step count of the optimizer carry over.

    Attributes:
        ratio: share of the budget to remove in total.
        iterations: number of iterations, each with one epoch or more.
        budget: `channels`, `parameters`, `flops` (multiply-adds) or `latency` (estimated).
        criterion: importance of a channel: change of the feature map of training images (`taylor`), gamma of
            batch normalisation and weights of the next layer (`rtic`, with `training.gamma_l2`), or norm of
            its weights (`l1`, `l2`).
    """

    ratio: Annotated[float, Field(gt=0, lt=1), AsValue] = 0.5
    iterations: Size = 5
    budget: Literal["channels", "parameters", "flops", "latency"] = "channels"
    criterion: Literal["taylor", "rtic", "l1", "l2"] = "taylor"


class SCST(Section):
    """Final epochs of self-critical sequence training, with the encoder and all zeros frozen.

    Captions are sampled and rewarded by their similarity to references.

    Attributes:
        epochs: number of epochs; each takes every image once.
        learning_rate: peak learning rate of Adam.
        schedule: `cosine` (decays to `training.final_learning_rate`), or `step` (times 0.8 after every three
            epochs, without warm-up).
        batch_size: images per step, across all devices.
        samples: captions sampled per image and step.
        baseline: what a caption's reward is compared with: the mean reward of the image's other captions
            (`others`), of all its captions (`all`), or the reward of the `greedy` caption.
        cider_d, bleu_4: weights of CIDEr-D (0 to 10) and BLEU-4 (0 to 1) in the reward.
        count_end: count the end token as a word; otherwise captions learn to end before they are complete.
        temperature: temperature of the sampling.
        dropout: use dropout where the log-probabilities of the sampled captions are computed; it is never
            used while they are sampled.
    """

    epochs: Size = 10
    learning_rate: Rate = 1e-4
    schedule: Literal["cosine", "step"] = "cosine"
    batch_size: Size = 50
    samples: Size = 5
    baseline: Literal["others", "all", "greedy"] = "others"
    cider_d: NotNegative = 1.0
    bleu_4: NotNegative = 0.0
    count_end: bool = True
    temperature: Rate = 1.0
    dropout: bool = False


class Training(Section):
    """How the captioner is trained.

    Attributes:
        start_from: folder of a finished run whose weights and vocabulary this run starts with, for example a
            dense run to prune; null starts with random weights.
        keep_initial: save the initial weights in `checkpoints/initial.npz`, so that lottery tickets
            (`pruning.method=lottery pruning.rounds=0`) can start from this run.
        epochs: number of training epochs, excluding fine-tuning and SCST; 0 starts with these.
        batch_size: captions per step, across all devices.
        captions_per_image: captions of the same image in a step, for which it is encoded once: faster with an
            encoder that is trained. Images with more captions use some of them in each epoch.
        learning_rate: peak learning rate of Adam.
        encoder_learning_rate: peak learning rate of an encoder that is trained, outside of `fine_tune`; null
            is `learning_rate`.
        schedule: `constant`; `cosine` (decays to `final_learning_rate`); or `noam` (decays with the inverse
            square root of the step after the warm-up).
        final_learning_rate: learning rate at the end of the `cosine` schedule.
        warmup_steps: number of steps in which `cosine` and `noam` raise the learning rate linearly from 0.
        adam_beta_2, adam_epsilon: Adam's decay rate of the second moment, and its epsilon.
        weight_decay: decoupled weight decay as in AdamW; gates and biases are excluded.
        clip_norm, clip_value: maximum global norm, and maximum absolute value, of gradients; null for none.
        label_smoothing: fraction of the target probability that is spread evenly over all tokens.
        teacher: folders of finished runs whose word distributions, averaged, are targets besides the
            reference captions (knowledge distillation). They may have other encoders and sizes, but need the
            same vocabulary. They see images without `data.augmentation`. null for none.
        teacher_weight: fraction of the loss that is the cross-entropy with the teachers' distributions.
        teacher_captions: number of captions that each teacher writes for each training image, with a beam
            search, and that are learned instead of the reference captions (sequence-level knowledge
            distillation, Kim and Rush 2016). The run keeps them in `teacher_captions.json`.
        teacher_loss: what a captioner learns from `teacher`: its word distributions (`words`), or, for
            transformers, the hidden states of one teacher's decoder: of all layers, without reference
            captions (`hidden`, RTIC's equation 6), or of all but the last, with reference captions
            (`proposed`, its equations 7 to 9).
        hidden_weight: weight of the squared difference of hidden states (lambda_2 of equation 9).
        encoder_l2: weight of the sum of all squared weights in the matrices of a transformer's encoder
            (lambda_1 of RTIC's equation 4, 0.01 there), so that heads and units can be removed afterwards.
        gamma_l2: weight of the sum of gamma² of all batch normalisations of an image encoder that is trained
            (RTIC), so that channels can be removed by their gammas, by `slim` or afterwards.
        object_weight: weight of the cross-entropy of the objects in an image, summed over the objects, if the
            data have labels; 0 for a captioner that predicts none.
        average_decay: decay of an exponential moving average of the weights, such as 0.998, which validation,
            checkpoints and the finished run use; null for none. It is lower in the first steps. Gates are not
            averaged.
        precision: `float32`; or `mixed_bfloat16` or `mixed_float16` (with loss scaling), for devices that are
            faster with them. Weights, their averages and checkpoints are always float32. On processors,
            `mixed_bfloat16` changes only products, if the processor has instructions for them (avx512_bf16
            or amx_bf16); a training then takes two thirds of the time.
        distribution: `default` (one device), `mirrored` (all devices of this machine), or `multi_worker` (the
            processes in `--workers` or `TF_CONFIG`, see docs/distributed.md).
        jit_compile: whether XLA compiles training steps: `auto` on one GPU, for captioners and pruning
            methods that support it; true on any device, or the training is refused; false never. Steps of
            SCST are never compiled.
        validation_images: number of images captioned after each epoch to compute CIDEr and BLEU-4; 0 for
            none, null for all.
        restore_best: keep the weights of the epoch with the best validation CIDEr at the final sparsity, not
            of the last epoch. With `pruning.encoder=A`, `B` or `C`, only epochs of fine-tuning count.
        slim: removes channels of an image encoder that is trained; null removes none.
        fine_tune: final epochs that also train the encoder.
        scst: final epochs on rewards instead of reference captions; null for none.
    """

    start_from: str | None = None
    keep_initial: bool = False
    epochs: Count = 2
    batch_size: Size = 32
    captions_per_image: Size = 1
    learning_rate: Rate = 3e-3
    encoder_learning_rate: Rate | None = None
    schedule: Literal["constant", "cosine", "noam"] = "cosine"
    final_learning_rate: NotNegative = 1e-5
    warmup_steps: Count = 100
    adam_beta_2: Share = 0.999
    adam_epsilon: Rate = 1e-7
    weight_decay: NotNegative = 0.0
    clip_norm: Rate | None = 1.0
    clip_value: Rate | None = None
    label_smoothing: Share = 0.0
    teacher: _Teachers = []
    teacher_weight: Annotated[float, Field(gt=0, le=1), AsValue] = 0.5
    teacher_captions: Annotated[int, Field(ge=0, le=LARGEST_BEAM), AsValue] = 0
    teacher_loss: Literal["words", "hidden", "proposed"] = "words"
    hidden_weight: Rate = 0.01
    encoder_l2: NotNegative = 0.0
    gamma_l2: NotNegative = 0.0
    object_weight: NotNegative = 0.2
    average_decay: Share | None = None
    precision: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    distribution: Literal["default", "mirrored", "multi_worker"] = "default"
    jit_compile: bool | Literal["auto"] = "auto"
    validation_images: Count | None = 200
    restore_best: bool = False
    slim: SlimSettings | None = None
    fine_tune: FineTune = FineTune()
    scst: SCST | None = None


class Decoding(Section):
    """How a run generates captions when it is evaluated, used or exported; not during training.

    Attributes:
        beam: beam size; 1 is greedy. Exported files have at least 3, because apps show alternatives.
        batch_size: images per batch.
        plain: plain beam search, without the rules for complete sentences and without length penalty.
        no_repeat_ngram: N-grams of this length, and words in a row, are not repeated; 0 allows repetitions.
            Null is 3, but 0 for synthetic scenes, whose correct captions repeat "a small red".
        function_words: words that do not end a caption and may occur more than twice: `english`, or a list of
            such words for captions in another language; an empty list switches both rules off.
        length_penalty: exponent A: captions are ranked by their score divided by length ** A; 0 by score.
    """

    beam: Annotated[int, Field(ge=1, le=LARGEST_BEAM), AsValue] = 1
    batch_size: Size = 64
    plain: bool = False
    no_repeat_ngram: Count | None = None
    function_words: Literal["english"] | list[str] = "english"
    length_penalty: Annotated[float, Field(ge=0, le=10), AsValue] = SearchOptions.length_penalty

    def changed(self, **options: Any) -> "Decoding":
        """These settings with other options; an option of the rules switches them on, see `plain`."""
        return self.model_copy(update={"plain": False, **options} if options else {})

    def search_options(self, data: str | None = None) -> SearchOptions | None:
        """The options of the search on a kind of data; None for a plain search."""
        return None if self.plain else self.rules(data)

    def rules(self, data: str | None = None) -> SearchOptions:
        """The rules for complete sentences on a kind of data, even if the search is plain."""
        words = FUNCTION_WORDS if self.function_words == "english" else tuple(self.function_words)
        ngram = self.no_repeat_ngram
        if ngram is None:
            ngram = 0 if data == "scenes" else SearchOptions.no_repeat_ngram
        return SearchOptions(ngram, words, self.length_penalty)
