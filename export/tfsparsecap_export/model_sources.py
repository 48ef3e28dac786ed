"""Loading what training wrote: the model, its vocabulary, and validation images with captions."""

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

import tfsparsecap.captioning.models  # noqa: F401 (registers the captioners with Keras)
from tfsparsecap.captioning.data.images import read_image
from tfsparsecap.captioning.data.records import Record
from tfsparsecap.captioning.data.tokenizers import Tokenizer
from tfsparsecap.captioning.inference.finished_run import FinishedRun
from tfsparsecap.captioning.runs.run_folder import RunFolder
from tfsparsecap.captioning.settings.build import load_data, region_features
from tfsparsecap.captioning.settings.schema import Config
from tfsparsecap.core import saved_models
from tfsparsecap.core.array_files import spread
from tfsparsecap.core.files import read_json
from tfsparsecap.errors import InputError
from tfsparsecap_export.caption_files.quality import CaptionedSamples
from tfsparsecap_export.samples import Sample


@dataclasses.dataclass(frozen=True)
class Run:
    """A trained model loaded from disk.

    Attributes:
        model: model without gates.
        tokenizer: tokenizer of the run, or None for a single model file.
        config: settings of the run, or None for a single model file.
        description: facts about the training for `captioner.json`. Its `scores` are those of the Keras
            model on the test split, before rounding.
        folder: its folder, or None for a single model file.
    """

    model: keras.Model
    tokenizer: Tokenizer | None = None
    config: Config | None = None
    description: dict = dataclasses.field(default_factory=dict)
    folder: RunFolder | None = None


def load_run(path: Path) -> Run:
    """Loads a run folder or a single `.keras` file.

    Raises:
        InputError: the path does not exist, or a part of the run is missing or damaged.
    """
    if path.suffix == ".keras":
        return Run(load_keras_file(path))
    if not path.is_dir():
        problem = f"{path} is a file" if path.is_file() else f"there is no run folder {path}"
        raise InputError(f"{problem}: give a folder that training wrote, such as runs/NAME, or a .keras file")
    finished = FinishedRun.load(path)
    data = finished.config.data
    source = f"{data.kind}: {Path(data.folder).name}" if data.folder else data.kind
    description: dict[str, Any] = {"run": finished.config.name, "trained_on": source}
    scores = path / "scores_test.json"
    if scores.is_file():
        values = read_json(scores, "evaluate the run again, or delete the file")
        if isinstance(values, dict):
            description["scores"] = {name: value for name, value in values.items() if name != "left_out"}
    return Run(finished.captioner, finished.tokenizer, finished.config, description, RunFolder(path))


def load_keras_file(path: Path) -> keras.Model:
    """Loads a Keras model from a `.keras` file without running code from the file.

    Raises:
        InputError: the file does not exist, or see `saved_models.load_model`.
    """
    if not path.is_file():
        raise InputError(f"there is no {path}: give a run folder or a .keras file")
    return saved_models.load_model(path, "save the model again, or give another file")


def validation_samples(
    run: Run, inputs: dict[str, tf.TensorSpec], count: int
) -> tuple[CaptionedSamples | None, str, str]:
    """Images from the run's validation split with their captions, at regular intervals.

    Args:
        run: the run.
        inputs: inputs of the file, see `caption_files.export_captioner.caption_inputs`.
        count: maximum number of images.

    Returns:
        Samples, such as `{"image": uint8 [1, S, S, 3]}`, with references, or None without data; what the
        inputs of the export are; and a note for the user, perhaps empty.
    """
    if run.config is None:
        return None, "synthetic inputs", ""
    try:
        folder = run.config.data.folder
        if run.config.data.kind == "scenes" and folder and not Path(folder).expanduser().is_dir():
            raise InputError(f"{folder} does not exist")  # and is not drawn again for a few samples
        data = load_data(run.config)
        note = "" if run.folder is None else run.folder.data_note(data)
        samples = _validation_samples(run, run.config, data.split("validation"), inputs, count)
        return samples, "validation images", note
    except InputError as error:
        # Not in the description, which the file contains: the reason names folders of this machine.
        return None, "synthetic inputs", f"the inputs are synthetic, because {error}"


def _validation_samples(
    run: Run, config: Config, records: list[Record], inputs: dict[str, tf.TensorSpec], count: int
) -> CaptionedSamples:
    records = [records[number] for number in spread(len(records), count)]
    if "image" in inputs:
        size = inputs["image"].shape[1]

        def read(index: int) -> Sample:
            return {"image": read_image(records[index].image, size)[None]}
    else:
        regions = inputs["features"].shape[1]
        data = config.data.model_copy(update={"max_regions": regions})
        features = region_features(config.model_copy(update={"data": data}), records)

        def read(index: int) -> Sample:
            values = features.fetch(index, regions)
            return {name: values[name][None] for name in inputs if name in values}

    samples, references = [], []
    for index, record in enumerate(records):
        with contextlib.suppress(InputError):  # training has reported this image; the others are sufficient
            samples.append(read(index))
            references.append(record.captions)
    if not samples:
        raise InputError("no validation image can be read")
    assert run.tokenizer is not None  # it comes with the configuration
    words = config.decoding.rules().function_words  # also if the search is plain
    return CaptionedSamples(samples, references, run.tokenizer.words.decode, words)
