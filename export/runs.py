"""Reading what a training left behind: the model, its vocabulary, and pictures to check its export with."""

import dataclasses
import json
import zipfile
from pathlib import Path

import keras
import numpy as np
from tfsparsecap_export.quality import Validation

import tfsparsecap.models  # noqa: F401 (registers the captioners with Keras)
from tfsparsecap.data.images import read_image
from tfsparsecap.data.tokenizers import WordTokenizer
from tfsparsecap.errors import InputError
from tfsparsecap.training.config import Config
from tfsparsecap.training.experiment import load_data
from tfsparsecap.training.trained import Trained


@dataclasses.dataclass(frozen=True)
class Run:
    """A trained model as it lies on disk.

    Attributes:
        model: without gates.
        vocabulary: the tokens in the order of their ids, or None for a model alone.
        config: the run's settings, or None for a model alone.
        description: what is known of the training, for `captioner.json`.
    """

    model: keras.Model
    vocabulary: list[str] | None = None
    config: Config | None = None
    description: dict = dataclasses.field(default_factory=dict)


def load_run(path: Path) -> Run:
    """Loads a run folder or a single `.keras` file.

    Raises:
        InputError: there is none, or a part of it is missing or damaged.
    """
    if path.suffix == ".keras":
        return Run(load_model(path))
    if path.is_file():
        raise InputError(f"{path} is a file: give a run folder, such as runs/NAME, or a .keras file")
    if not path.is_dir():
        raise InputError(
            f"there is no run folder {path}: give the folder that a training wrote, such as runs/NAME"
        )
    trained = Trained.load(path)
    data = trained.config.data
    source = f"{data.kind}: {Path(data.folder).name}" if data.folder else data.kind
    description = {"run": trained.config.name, "trained_on": source}
    scores = path / "scores_test.json"
    if scores.is_file():
        try:
            description["scores"] = json.loads(scores.read_text(encoding="utf-8"))
        except (ValueError, OSError) as error:
            raise InputError(
                f"{scores} is no JSON ({error}): evaluate the run again, or delete it"
            ) from error
    return Run(trained.captioner, list(trained.tokenizer.vocabulary), trained.config, description)


def load_model(path: Path) -> keras.Model:
    """A Keras model from a `.keras` file; no code in the file is run.

    Raises:
        InputError: the file is absent or damaged, or holds a layer that is not known here.
    """
    if not path.is_file():
        raise InputError(f"there is no {path}: give a run folder or a .keras file")
    try:
        return keras.saving.load_model(path, compile=False, safe_mode=True)
    except InputError:
        raise
    except (
        ValueError,
        TypeError,
        KeyError,
        OSError,
        zipfile.BadZipFile,
        AttributeError,
        ImportError,
    ) as error:
        reason = str(error).strip().partition("\n")[0][:200] or type(error).__name__
        if not zipfile.is_zipfile(path):
            reason = "it is no .keras file, which is a zip archive"
        raise InputError(
            f"cannot load {path} ({reason}): save the model again, or give another one"
        ) from error


def validation_of(run: Run, image_size: int, count: int) -> tuple[Validation | None, str]:
    """Pictures of the run's own validation split with their captions, evenly spread over it.

    Args:
        run: a run folder's.
        image_size: side of the square images in pixels.
        count: how many at most.

    Returns:
        Samples `{"image": uint8 [1, S, S, 3]}` with references, and what they are. Nothing, and why, where
        the data is not at hand.
    """
    config = run.config
    if config is None:
        return None, "made-up inputs"
    if config.data.folder is not None and not Path(config.data.folder).is_dir():
        return None, f"made-up pictures, because {config.data.folder} is absent"
    try:
        records = load_data(config).split("validation")
    except InputError as error:
        return None, f"made-up pictures, because {error}"
    samples, references = [], []
    for index in np.linspace(0, len(records) - 1, num=min(count, len(records))).astype(int):
        try:
            samples.append({"image": read_image(records[index].image, image_size)[None]})
        except InputError:
            continue  # training counted and named this picture; here the others do as well
        references.append(records[index].captions)
    if not samples:
        return None, "made-up pictures, for want of validation pictures"
    return Validation(samples, references, WordTokenizer(run.vocabulary).decode), "validation pictures"
