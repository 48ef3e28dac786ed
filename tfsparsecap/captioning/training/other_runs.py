"""Runs that a training builds on: `training.start_from`, `training.teacher`, and its own checkpoints."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from tqdm import tqdm

from tfsparsecap.captioning.data.records import CaptionData, listed
from tfsparsecap.captioning.data.tokenizers import Tokenizer
from tfsparsecap.captioning.inference.finished_run import FinishedRun
from tfsparsecap.captioning.inference.splits import captions_of_batch, readable_batches
from tfsparsecap.captioning.models.captioner_base import Captioner
from tfsparsecap.captioning.runs.checkpoints import newest_intact, read_notes, restore_weights, weights_digest
from tfsparsecap.captioning.runs.run_folder import RunFolder
from tfsparsecap.captioning.settings.build import RunData, make_captioner, objects_of
from tfsparsecap.captioning.settings.schema import Config, TransformerModel
from tfsparsecap.captioning.training.phases import phases
from tfsparsecap.captioning.training.run_pruning import rewinds_to_initial_weights
from tfsparsecap.core.files import read_json
from tfsparsecap.errors import InputError
from tfsparsecap.model_summary.nonzeros import weight_counts

# Size of the vocabulary of captioners that are compared.
_TOKENS = 8


def load_start(config: Config) -> FinishedRun:
    """The run in `training.start_from`.

    Raises:
        InputError: it is not finished, or encodes words differently from `config`.
    """
    assert config.training.start_from is not None
    start = FinishedRun.load(Path(config.training.start_from).expanduser())
    check_tokens(start.config, config, f"training.start_from: the run in {config.training.start_from}")
    return start


def check_tokens(theirs: Config, config: Config, run: str) -> None:
    """Checks that a run encodes words like the one that starts from it, `config`.

    Args:
        run: names the run in the message.

    Raises:
        InputError: it does not.
    """
    for name in ("radix_base", "sentencepiece"):
        value, own = getattr(theirs.data, name), getattr(config.data, name)
        if (value is None) != (own is None) or (name == "radix_base" and value != own):
            raise InputError(
                f"{run} has data.{name}={value or 'null'}, this one {own or 'null'}: set the same value"
            )


def check_start(start: Config, config: Config, run: str) -> None:
    """Checks that a run can start from another one, before that one is trained.

    Captioners are made and compared if more than their dropout differs, but no data is read.

    Args:
        start: settings of the run that is trained first.
        config: settings of the run that starts from it.
        run: what messages call the first one.

    Raises:
        InputError: they do not fit together.
    """
    check_tokens(start, config, run)
    if rewinds_to_initial_weights(config) and not start.training.keep_initial:
        raise InputError(
            f"{run} does not keep its initial weights, with which a lottery ticket starts: set"
            " training.keep_initial=true for it"
        )
    if start.pruning is None and config.pruning is not None:
        gradual = config.pruning.options.get("allocation") == "gradual"
        if config.pruning.method == "frozen" or (gradual and rewinds_to_initial_weights(config)):
            raise InputError(
                f"{run} is not pruned, so there are no zeros for pruning.method={config.pruning.method} to"
                " keep: prune it, or choose another method"
            )
    sizes = [
        {name: value for name, value in settings.model.model_dump().items() if "dropout" not in name}
        for settings in (start, config)
    ]
    if sizes[0] == sizes[1]:
        return
    # The run takes the vocabulary of the one that it starts from, so that any size will do.
    made = [make_captioner(settings, _TOKENS, weights=False) for settings in (start, config)]
    differs = differing_weight(*made)
    if differs:
        raise InputError(
            f"{run} has another captioner, from which this one cannot start ({differs}): set the same"
            " sizes and the same encoder"
        )


def load_initial_weights(config: Config, captioner: Captioner) -> list[np.ndarray]:
    """The weights that the run in `training.start_from` started with, in the order of `get_weights()`.

    Raises:
        InputError: the run did not keep them, or its captioner is another one.
    """
    assert config.training.start_from is not None
    folder = RunFolder(Path(config.training.start_from).expanduser())
    if not folder.initial.is_file():
        raise InputError(
            f"a lottery ticket is rewound to the initial weights of its run, but {folder.path} has no"
            f" checkpoints/{folder.initial.name}: train that run with training.keep_initial=true, or let this"
            " run train first (pruning.rounds=1, training.start_from=null)"
        )
    return restore_weights(folder.initial, captioner)


def newest_checkpoint(config: Config, folder: RunFolder, report: Callable[[str], None]) -> Path | None:
    """The newest intact checkpoint of a run; None if there is none yet.

    Args:
        report: called with what is wrong with newer ones, and with the epoch.
    """
    path, damaged = newest_intact(folder.checkpoint_files(), [phase.name for phase in phases(config)])
    for what in damaged:
        report(f"ignored: {what}")
    if path is None:
        report("there is no complete checkpoint yet: starting from the beginning")
    else:
        report(f"resuming after epoch {read_notes(path)['epoch']}")
    return path


def objects_of_run(
    config: Config,
    data: CaptionData,
    start: FinishedRun | None,
    checkpoint: Path | None,
    report: Callable[[str], None],
) -> tuple[str, ...]:
    """Names of the objects that a run's captioner predicts.

    They are those of the checkpoint or of the run that it starts from, otherwise the labels of the data.

    Raises:
        InputError: the data have objects that the captioner of the run that it starts from does not predict.
    """
    labelled, where = objects_of(config, data), config.training.start_from
    if checkpoint is not None:
        return tuple(read_notes(checkpoint).get("objects", labelled))
    if start is None:
        return labelled
    objects = start.captioner.objects
    if labelled and not objects:
        report(f"the captioner in {where} predicts no objects: the labels of {data.name} are not used")
    elif unknown := sorted({*labelled} - {*objects}):
        raise InputError(
            f"training.start_from: the captioner in {where} predicts {len(objects)} objects, without some of"
            f" the {len(labelled)} that are labelled in {data.name} ({listed(unknown)}): give data with its"
            " labels, or set training.object_weight=0 to train without them"
        )
    elif labelled and (absent := sorted({*objects} - {*labelled})):
        report(
            f"no photograph of {data.name} has one of the labels {listed(absent)}, which the captioner in"
            f" {where} predicts: it learns that these objects are not there"
        )
    return objects


def start_with(start: Captioner, captioner: Captioner, config: Config, report: Callable[[str], None]) -> None:
    """Copies all weights of `start`, the captioner of the run in `training.start_from`, to `captioner`.

    Raises:
        InputError: the captioners differ.
    """
    where = config.training.start_from
    differs = differing_weight(start, captioner)
    if differs:
        raise InputError(
            f"training.start_from: the captioner in {where} is different ({differs}): use the model settings"
            " of its config.yaml"
        )
    captioner.set_weights(start.get_weights())
    report(f"starting with the weights of {where}")
    zeros = weight_counts(captioner)["sparsity"]
    if config.pruning is None and zeros > 0.2:
        report(
            f"{zeros:.0%} of its weights are zero and will be trained: pruning.method=frozen"
            f" pruning.sparsity={zeros:.3g} keeps them zero"
        )


def differing_weight(start: Captioner, captioner: Captioner) -> str:
    """The first weight in which two captioners differ, in words; empty if one can start with the other's."""
    for own, other in itertools.zip_longest(captioner.weights, start.weights):
        if own is None or other is None or own.name != other.name or own.shape != other.shape:
            weight = own if other is None else other
            return f"{weight.path} of shape {tuple(weight.shape)} does not match"
    return ""


def start_at_frequencies(captioner: Captioner, targets: np.ndarray) -> None:
    """Sets the biases of the output layer to the logarithms of the frequencies of the tokens.

    The captioner then starts with the tokens' frequencies as its prediction, and does not spend its first
    steps on them: with biases of zero, an LSTM saturates its units in order to express them.

    Args:
        captioner: a new captioner of this package.
        targets: int [N, T], the tokens that it learns to predict; padding is ignored.
    """
    counts = np.bincount(targets[targets != captioner.pad_id], minlength=captioner.vocabulary_size)
    # One more for each, so that every token remains possible.
    captioner.output_layer.bias.assign(np.log((counts + 1) / (counts + 1).sum()))


# Width of the search for the captions of teachers, at least.
_LEAST_BEAM = 5
# In the entries of a run's `teachers.json`, in the order of `training.teacher`.
_DIGEST = "weights_sha256"


def load_teachers(config: Config, tokenizer: Tokenizer, folder: RunFolder) -> list[FinishedRun]:
    """The runs in `training.teacher`, which may have other encoders and sizes than the run they teach.

    Args:
        config: settings of the run that is taught.
        tokenizer: its vocabulary.
        folder: its folder. If it has been trained there already, its teachers must have the same weights.

    Raises:
        InputError: a run is not finished, it has another vocabulary or caption length, or its weights have
            changed.
    """
    teachers = []
    for where in config.training.teacher:
        try:
            teacher = FinishedRun.load(Path(where).expanduser())
        except InputError as error:
            raise InputError(f"training.teacher: {error}") from error
        run = f"training.teacher: the run in {where}"
        check_teacher(teacher.config, config, run)
        check_same_vocabulary(teacher.tokenizer, tokenizer, run)
        teachers.append(teacher)
    _check_unchanged(teachers, config, folder)
    return teachers


def check_same_vocabulary(theirs: Tokenizer, tokenizer: Tokenizer, run: str) -> None:
    """Checks that a teacher, called `run` in the message, has the token ids of the run that it teaches."""
    if _tokens(theirs) != _tokens(tokenizer):
        raise InputError(
            f"{run} has another vocabulary: train both on the same data with the same data.minimum_count, or"
            " start from one run with training.start_from"
        )


def check_teacher(theirs: Config, config: Config, run: str) -> None:
    """Checks that a run can learn from a teacher, called `run` in the message.

    Raises:
        InputError: lengths of captions differ, or decoder states that `training.teacher_loss` compares.
    """
    longest, own = theirs.data.max_length, config.data.max_length
    if longest != own:
        raise InputError(f"{run} has data.max_length={longest}, this one {own}: set the same value")
    if (loss := config.training.teacher_loss) == "words":
        return
    model, teacher = config.model, theirs.model
    assert isinstance(model, TransformerModel)  # `check_settings` has checked it
    depth = model.decoder_layers or model.layers
    shape = isinstance(teacher, TransformerModel) and (teacher.size, teacher.decoder_layers or teacher.layers)
    if not shape or shape[0] != model.size or shape[1] < depth:
        raise InputError(
            f"{run} has no transformer decoder of size {model.size} and {depth} layers or more, which"
            f" training.teacher_loss={loss} needs: give another run, or set training.teacher_loss=words"
        )


def _check_unchanged(teachers: Sequence[FinishedRun], config: Config, folder: RunFolder) -> None:
    """Checks that a resumed run has the teachers with which it began; older runs do not know them."""
    if not teachers or not folder.teachers.is_file():
        return
    remedy = "copy it again, or delete it to resume without comparing the teachers"
    entries = read_json(folder.teachers, remedy)
    valid = (
        isinstance(entries, list)
        and len(entries) == len(teachers)
        and all(isinstance(entry, dict) and isinstance(entry.get(_DIGEST), str) for entry in entries)
    )
    if not valid:
        raise InputError(f"{folder.teachers} does not describe the teachers of this run: {remedy}")
    for entry, teacher, where in zip(entries, teachers, config.training.teacher, strict=True):
        if entry[_DIGEST] != weights_digest(teacher.captioner.weights):
            raise InputError(
                f"training.teacher: the weights of the run in {where} have changed since"
                f" {folder.path} began to learn from it: put the old teacher back, or train under another"
                " name="
            )


def save_teaching(
    teachers: Sequence[FinishedRun], taught: Mapping[str, Sequence[str]], folder: RunFolder
) -> None:
    """Writes what a resumed run needs to know about its teachers.

    Args:
        teachers: the teachers.
        taught: their captions, see `teacher_captions`.
        folder: of the run that is taught.
    """
    if teachers:
        entries = [
            {"run": run.config.name, _DIGEST: weights_digest(run.captioner.weights)} for run in teachers
        ]
        folder.write_json(folder.teachers.stem, entries)
    if taught:
        folder.write_json(folder.teacher_captions.stem, taught)


def teacher_data(teacher: FinishedRun, config: Config, data: CaptionData, *, progress: bool) -> RunData:
    """The inputs of a teacher for the images of `data`; its encoder's features are cached."""
    own = teacher.config
    if own.model.encoder is not None:
        frozen = own.model.encoder.model_copy(update={"trainable": False, "frozen_until": None})
        own = own.model_copy(update={"model": own.model.model_copy(update={"encoder": frozen})})
    settings = config.data.model_copy(update={"features": own.data.features})
    own = own.model_copy(update={"data": settings, "pruning": None})
    return RunData(own, data, teacher.tokenizer, teacher.captioner.encoder, progress)


def teacher_captions(
    teachers: Sequence[FinishedRun], run_data: RunData, written: Path
) -> dict[str, list[str]]:
    """The captions of `training.teacher_captions`: the best ones of each teacher's beam search.

    Args:
        teachers: the teachers.
        run_data: the data of the run that is taught.
        written: the file of the run. If it exists, the run is resumed and continues with its captions.

    Returns:
        `image_id -> captions` of the training images for which the teachers have captions.

    Raises:
        InputError: an image cannot be read, or the file is damaged.
    """
    if written.is_file():
        return _read_captions(written)
    count = run_data.config.training.teacher_captions
    captions: dict[str, list[str]] = {}
    if not count:
        return captions
    for teacher, data in zip(teachers, run_data.teachers, strict=True):
        for image_id, texts in _best_captions(teacher, data, count):
            captions.setdefault(image_id, []).extend(texts)
    return {image_id: texts for image_id, texts in captions.items() if texts}


def _best_captions(teacher: FinishedRun, data: RunData, count: int) -> Iterator[tuple[str, list[str]]]:
    """Each training image with the `count` best captions of a teacher."""
    records, tokenizer = data.data.split("train"), teacher.tokenizer
    decoder = teacher.decoder(max(count, teacher.config.decoding.beam, _LEAST_BEAM))
    batches = readable_batches(data.image_batches(records, from_images=False))
    with tqdm(total=len(records), unit="image", desc="teacher's captions", disable=not data.progress) as bar:
        for batch in batches:
            indices = batch["index"].numpy()
            for index, captions in zip(indices, captions_of_batch(decoder, tokenizer, batch), strict=True):
                texts = [caption.text for caption in captions[:count]]
                yield records[index].image_id, [text for text in texts if text]
            bar.update(len(indices))


def _read_captions(path: Path) -> dict[str, list[str]]:
    remedy = "delete it, and the teachers write their captions again"
    captions = read_json(path, remedy)
    valid = isinstance(captions, dict) and all(
        isinstance(texts, list) and all(isinstance(text, str) for text in texts)
        for texts in captions.values()
    )
    if not valid:
        raise InputError(f"{path} does not contain captions of images: {remedy}")
    return captions


def _tokens(tokenizer: Tokenizer) -> tuple:
    """What two tokenizers with the same token ids have in common."""
    return type(tokenizer), tokenizer.vocabulary, len(tokenizer), tokenizer.digits
