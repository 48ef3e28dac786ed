"""Teachers: finished runs whose words or hidden states a captioner learns, `training.teacher`."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import keras
from tqdm import tqdm

from tfsparsecap.captioning.data.records import CaptionData
from tfsparsecap.captioning.data.tokenizers import Tokenizer
from tfsparsecap.captioning.inference.finished_run import FinishedRun
from tfsparsecap.captioning.inference.splits import captions_of_batch, readable
from tfsparsecap.captioning.models.captioner_base import Captioner
from tfsparsecap.captioning.models.transformer_captioner import TransformerCaptioner
from tfsparsecap.captioning.runs.run_data import RunData
from tfsparsecap.captioning.runs.run_folder import RunFolder
from tfsparsecap.captioning.settings.schema import Config, TransformerModel
from tfsparsecap.core.files import read_json
from tfsparsecap.errors import InputError

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
        check_length(teacher.config, config, f"training.teacher: the run in {where}")
        if _tokens(teacher.tokenizer) != _tokens(tokenizer):
            raise InputError(
                f"training.teacher: the run in {where} has another vocabulary: train both on the same data"
                " with the same data.minimum_count, or start from one run with training.start_from"
            )
        if config.training.teacher_loss != "words":
            _check_states(teacher.captioner, config, where)
        teachers.append(teacher)
    _check_unchanged(teachers, config, folder)
    return teachers


def check_length(theirs: Config, config: Config, run: str) -> None:
    """Checks that the captions of a teacher, called `run` in the message, are as long as those it teaches."""
    longest, own = theirs.data.max_length, config.data.max_length
    if longest != own:
        raise InputError(f"{run} has data.max_length={longest}, this one {own}: set the same value")


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
        if entry[_DIGEST] != _digest(teacher.captioner):
            raise InputError(
                f"training.teacher: the weights of the run in {where} have changed since"
                f" {folder.path} began to learn from it: put the old teacher back, or train under another"
                " name="
            )


def _digest(captioner: Captioner) -> str:
    """SHA-256 of all weights. (Files with the same weights differ: they contain the time of saving.)"""
    digest = hashlib.sha256()
    for weight in captioner.weights:
        array = keras.ops.convert_to_numpy(weight)
        digest.update(f"{array.shape} {array.dtype}".encode() + array.tobytes())
    return digest.hexdigest()


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
        entries = [{"run": run.config.name, _DIGEST: _digest(run.captioner)} for run in teachers]
        folder.write_json(folder.teachers.stem, entries)
    if taught:
        folder.write_json(folder.teacher_captions.stem, taught)


def _check_states(teacher: Captioner, config: Config, where: str) -> None:
    """Checks that the run's decoder can learn the hidden states of a teacher."""
    own = config.model
    assert isinstance(own, TransformerModel)  # `check_settings` has checked it
    depth = own.decoder_layers or own.layers
    if not isinstance(teacher, TransformerCaptioner) or teacher.size != own.size or teacher.depth < depth:
        raise InputError(
            f"training.teacher_loss={config.training.teacher_loss} needs a teacher with a transformer decoder"
            f" of size {own.size} and {depth} layers or more, which the run in {where} does not have: give"
            " another run, or set training.teacher_loss=words"
        )


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
    batches = readable(data.image_batches(records, from_images=False))
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
