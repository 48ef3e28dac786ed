"""A finished run: its captioner loaded from its folder, captioning images and evaluated on a split."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keras

from tfsparsecap.captioning.data.records import CaptionData
from tfsparsecap.captioning.data.tokenizers import Tokenizer
from tfsparsecap.captioning.inference.generate import CaptionGenerator, Captions, Inputs, stacked_inputs
from tfsparsecap.captioning.inference.scoring import ImageCaption, scores_of
from tfsparsecap.captioning.inference.splits import (
    caption_records,
    captions_of_batch,
    records_of,
    split_scores,
)
from tfsparsecap.captioning.models.captioner_base import Captioner
from tfsparsecap.captioning.models.image_encoders.encoder_base import Encoder
from tfsparsecap.captioning.runs.run_folder import RunFolder
from tfsparsecap.captioning.search.beam_search import Decoder
from tfsparsecap.captioning.search.sampling import Sampler
from tfsparsecap.captioning.search.sentence_rules import SearchRules
from tfsparsecap.captioning.settings.build import RunData, load_data
from tfsparsecap.captioning.settings.schema import Config
from tfsparsecap.core.saved_models import load_model
from tfsparsecap.errors import InputError
from tfsparsecap.model_summary.nonzeros import weight_counts

# Far above any caption: memory and time of the search grow with it.
_LONGEST = 10_000


@dataclass
class FinishedRun(CaptionGenerator):
    """A trained captioner with its vocabulary and the settings of its run.

    Attributes:
        captioner: the Keras model, without gates.
        tokenizer: its vocabulary.
        config: the settings.

    Examples:
        >>> run = FinishedRun.load("runs/quickstart")  # doctest: +SKIP
        >>> print(run.generate("photo.jpg", beam=3)[0])  # doctest: +SKIP
        a small red circle above a large blue star
    """

    captioner: Captioner
    tokenizer: Tokenizer
    config: Config
    _searches: dict[tuple[Any, ...], Decoder] = field(default_factory=dict, repr=False)

    @classmethod
    def load(cls, path: str | Path) -> "FinishedRun":
        """Reads a run folder.

        Raises:
            InputError: it is not one, the run is not finished, or a file in it is damaged.
        """
        folder = RunFolder(path)
        config = folder.load_config()
        if not folder.model.is_file():
            paths = ["--config", str(folder.config_file), "--runs", str(folder.path.parent)]
            raise InputError(
                f"the run in {path} has no model.keras yet: finish it with"
                f" python -m tfsparsecap.train {shlex.join(paths)} --resume"
            )
        tokenizer = folder.load_tokenizer(config.data.radix_base)
        captioner = load_model(folder.model, "copy it again, or train the run again")
        differs = _difference(captioner, tokenizer, config)
        if differs:
            raise InputError(
                f"the files in {path} do not belong together: {differs}; copy the whole folder again, or"
                " train the run again"
            )
        return cls(captioner, tokenizer, config)

    def __post_init__(self) -> None:
        data, encoder = self.config.data, self.config.model.encoder
        self.label = f"the run {self.config.name}"
        self.image_size = None
        if encoder is not None:
            self.image_size = getattr(self.captioner.encoder, "image_size", encoder.image_size)
        self.feature_size = self.captioner.feature_size if encoder is None else None
        self.input_names, self.max_regions = self.captioner.input_names, data.max_regions
        self.batch_size = self.config.decoding.batch_size

    def decoder(self, beam: int | None = None) -> Decoder:
        """The beam search; None takes the run's own beam."""
        beam = beam or self.config.decoding.beam
        return Decoder(self.captioner, beam, self.config.data.max_length, self._rules())

    def _rules(self) -> SearchRules | None:
        options = self.config.decoding.search_options(self.config.data.kind)
        return None if options is None else SearchRules(self.captioner, options, self.tokenizer)

    def change_search(self, **options: Any) -> None:
        self.config.decoding = self.config.decoding.changed(**options)
        self._searches.clear()

    def search(
        self, beam: int | None = None, samples: int | None = None, **sampling: Any
    ) -> Callable[[Sequence[Inputs]], list[Captions]]:
        # Compiled searches are kept, except those with a seed, which must start again.
        key = (beam, samples, *sorted(sampling.items()))
        search: Decoder
        if key in self._searches:
            search = self._searches[key]
        elif samples is None:
            search = self.decoder(beam)
        else:
            length = self.config.data.max_length
            search = Sampler(self.captioner, samples, length, rules=self._rules(), **sampling)
        if "seed" not in sampling:
            self._searches[key] = search
        return lambda batch: captions_of_batch(search, self.tokenizer, stacked_inputs(batch))

    def evaluate(
        self,
        data: CaptionData | None = None,
        split: str = "test",
        beam: int | None = None,
        progress: bool = True,
        run_data: RunData | None = None,
        scorer: Callable[[list[ImageCaption]], dict[str, Any]] = scores_of,
    ) -> tuple[dict[str, Any], list[ImageCaption]]:
        """Captions every image of a split and scores the captions.

        Args:
            data: None loads the data set of the run.
            split: `train`, `validation` or `test`.
            beam: None takes the run's own beam.
            progress: show a progress bar.
            run_data: batches of the data; its `skipped` then lists what could not be read.
            scorer: computes the scores; the default needs no Java, see `scoring.all_scores_of`.

        Returns:
            The content of `scores_SPLIT.json`: `split`, `images`, `left_out` (ids of images that could not
            be read), `beam`, the scores, those of `object_scores_of`, `ms_per_image` (on this machine, in
            batches, including reading, without tracing), the `weight_counts`, and, if these leave out the
            encoder, `encoder_weights` and `encoder_nonzero_weights`; and the captions.

        Raises:
            InputError: the split is empty or cannot be read.
        """
        data = data or load_data(self.config)
        records = records_of(data, split)
        run_data = run_data or RunData(self.config, data, self.tokenizer, self.captioner.encoder, progress)
        batches = run_data.image_batches(records, from_images=True, batch_size=self.batch_size)
        decoder = self.decoder(beam)
        captions, milliseconds = caption_records(decoder, records, batches, self.tokenizer, progress=progress)
        scores = {
            **split_scores(data, split, captions, decoder.beam, self.captioner.objects, scorer),
            "ms_per_image": milliseconds,
            **self._counts(),
        }
        return scores, captions

    def _counts(self) -> dict[str, int | float]:
        with_encoder = self.config.pruning is not None and bool(self.config.pruning.encoder)
        counts = weight_counts(self.captioner, with_encoder)
        if self.captioner.encoder and not with_encoder:
            total = weight_counts(self.captioner, with_encoder=True)
            counts |= {
                f"encoder_{name}": total[name] - counts[name] for name in ("weights", "nonzero_weights")
            }
        return counts


def _difference(captioner: keras.Model, tokenizer: Tokenizer, config: Config) -> str:
    """How the model differs from the vocabulary and the settings of its run; empty if it does not."""
    if not isinstance(captioner, Captioner):
        return "model.keras is not a captioner"
    if captioner.vocabulary_size != len(tokenizer):
        return f"the vocabulary has {len(tokenizer)} tokens, the model {captioner.vocabulary_size}"
    for name in ("start_id", "end_id", "pad_id"):
        own, other = getattr(captioner, name), getattr(tokenizer, name)
        if own != other:
            return f"{name} is {other} in the vocabulary and {own} in the model"
    length, own = config.data.max_length, captioner.max_length
    if own is not None and own > _LONGEST:
        return f"the model generates {own} tokens"
    if own not in (None, length):
        return f"data.max_length is {length} in config.yaml and {own} in the model"
    settings = config.model.encoder
    if (captioner.encoder is None) != (settings is None):
        return "only one of model and settings has an encoder"
    if settings is not None and isinstance(captioner.encoder, Encoder):  # the settings' own
        size = captioner.encoder.image_size
        if size != settings.image_size:
            return f"model.encoder.image_size is {settings.image_size} in config.yaml and {size} in the model"
    return ""
