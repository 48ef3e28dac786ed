"""Reading what a training left behind: the model, its vocabulary, and pictures to check its export with."""

import dataclasses
import json
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

import tfsparsecap.models  # noqa: F401 (registers the captioners with Keras)
from tfsparsecap.data.images import read_image
from tfsparsecap.data.records import Record
from tfsparsecap.data.tokenizers import Tokenizer
from tfsparsecap.errors import InputError
from tfsparsecap.inference.finished_run import FinishedRun
from tfsparsecap.settings.build import load_data, region_features
from tfsparsecap.settings.schema import Config
from tfsparsecap_export.samples import Sample
from tfsparsecap_export.verify.quality import CaptionedSamples


@dataclasses.dataclass(frozen=True)
class Run:
    """A trained model as it lies on disk.

    Attributes:
        model: without gates.
        tokenizer: the run's, or None for a model alone.
        config: the run's settings, or None for a model alone.
        description: what is known of the training, for `captioner.json`.
    """

    model: keras.Model
    tokenizer: Tokenizer | None = None
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
    trained = FinishedRun.load(path)
    data = trained.config.data
    source = f"{data.kind}: {Path(data.folder).name}" if data.folder else data.kind
    description = {"run": trained.config.name, "trained_on": source}
    scores = path / "scores_test.json"
    if scores.is_file():
        try:
            found = json.loads(scores.read_text(encoding="utf-8"))
            description["scores"] = {name: value for name, value in found.items() if name != "left_out"}
        except (ValueError, OSError, AttributeError) as error:
            raise InputError(
                f"{scores} is no JSON ({error}): evaluate the run again, or delete it"
            ) from error
    return Run(trained.captioner, trained.tokenizer, trained.config, description)


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


def validation_of(
    run: Run, inputs: dict[str, tf.TensorSpec], count: int
) -> tuple[CaptionedSamples | None, str]:
    """Pictures of the run's own validation split with their captions, evenly spread over it.

    Args:
        run: a run folder's.
        inputs: of the file, see `exporter.caption_inputs`.
        count: how many at most.

    Returns:
        Samples, such as `{"image": uint8 [1, S, S, 3]}`, with references, and what they are. Nothing, and
        why, where the data is not at hand.
    """
    config = run.config
    if config is None:
        return None, "made-up inputs"
    if config.data.folder is None and config.data.kind != "scenes":
        return None, "made-up inputs, because the run names no data"
    folders = (config.data.folder, config.data.features if "features" in inputs else None)
    for folder in folders:
        if folder is not None and not Path(folder).expanduser().is_dir():
            return None, f"made-up pictures, because {folder} is absent"
    samples, references = [], []
    try:
        records = load_data(config).split("validation")
        chosen = [records[i] for i in np.linspace(0, len(records) - 1, min(count, len(records))).astype(int)]
        read = _reader(config, chosen, inputs) if chosen else None
    except InputError as error:
        return None, f"made-up pictures, because {error}"
    for index, record in enumerate(chosen):
        try:
            samples.append(read(index))
        except InputError:
            continue  # training counted and named this picture; here the others do as well
        references.append(record.captions)
    if not samples:
        return None, "made-up pictures, for want of validation pictures"
    return CaptionedSamples(samples, references, run.tokenizer.words.decode), "validation pictures"


def _reader(
    config: Config, records: Sequence[Record], inputs: dict[str, tf.TensorSpec]
) -> Callable[[int], Sample]:
    """What gives the inputs of a record by its number."""
    if "image" in inputs:
        size = inputs["image"].shape[1]
        return lambda index: {"image": read_image(records[index].image, size)[None]}
    if config.data.features is None:
        raise InputError("the run names no features: set data.features in its config.yaml")
    regions = inputs["features"].shape[1]
    data = config.data.model_copy(update={"max_regions": regions})
    features = region_features(config.model_copy(update={"data": data}), records)

    def read(index: int) -> Sample:
        given = features.fetch(np.array([index]), regions)
        return {name: given[name] for name in inputs if name in given}

    return read
