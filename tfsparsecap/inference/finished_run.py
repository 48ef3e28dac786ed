"""A finished run: loaded, captioning pictures, evaluated on a split."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np

from tfsparsecap.data.records import CaptionData, Record, shown
from tfsparsecap.data.tokenizers import Tokenizer
from tfsparsecap.decoding import Decoder
from tfsparsecap.errors import InputError
from tfsparsecap.inference.scoring import ImageCaption, caption_records, scores_of
from tfsparsecap.models.captioner import Captioner
from tfsparsecap.runs.run_data import RunData
from tfsparsecap.runs.run_folder import RunFolder
from tfsparsecap.sampling import Sampler
from tfsparsecap.settings.build import load_data
from tfsparsecap.settings.schema import Config
from tfsparsecap.summary.nonzeros import weight_counts


@dataclass
class FinishedRun:
    """A captioner with all that it needs to say what is on a picture.

    Attributes:
        captioner: has no gates.
        tokenizer: its vocabulary.
        config: of the run it comes from.

    Example:
        >>> trained = FinishedRun.load("runs/quickstart")  # doctest: +SKIP
        >>> trained.caption(read_image("photo.jpg", trained.image_size))  # doctest: +SKIP
        [('a small red circle above a large blue star', -1.9)]
    """

    captioner: Captioner
    tokenizer: Tokenizer
    config: Config

    @classmethod
    def load(cls, path: str | Path) -> "FinishedRun":
        """Reads a run folder.

        Raises:
            InputError: it is none, the run is not finished, or a file in it is damaged.
        """
        folder = RunFolder(path)
        config = folder.load_config()
        if not folder.model.is_file():
            raise InputError(f"the run in {path} has no model.keras yet: finish it with --resume")
        try:
            captioner = keras.saving.load_model(folder.model, compile=False, safe_mode=True)
        except (OSError, ValueError, TypeError, KeyError) as error:
            reason = str(error).strip().partition("\n")[0][:200]
            raise InputError(f"cannot read {folder.model} ({reason}): train the run again") from error
        return cls(captioner, folder.load_tokenizer(config.data.radix_base), config)

    @property
    def image_size(self) -> int | None:
        """Side of the square images in pixels; None where the captioner takes features."""
        encoder = self.config.model.encoder
        return None if encoder is None else encoder.image_size

    def decoder(self, beam: int | None = None) -> Decoder:
        """The search for captions; None takes the run's own beam."""
        return Decoder(self.captioner, beam or self.config.decoding.beam, self.config.data.max_length)

    def sampler(self, samples: int, **options: Any) -> Sampler:
        """Captions drawn at random; `options` are those of `tfsparsecap.sampling.Sampler`."""
        return Sampler(self.captioner, samples, self.config.data.max_length, **options)

    def caption(
        self,
        image: np.ndarray | None = None,
        beam: int | None = None,
        search: Decoder | Sampler | None = None,
        **features: np.ndarray,
    ) -> list[tuple[str, float]]:
        """Captions of an image, best first, each with the sum of its log-probabilities.

        Args:
            image: uint8 [S, S, 3] as `data.images.read_image` gives it.
            beam: how many captions are searched for; None takes the run's own.
            search: what `decoder` or `sampler` gave, in place of a beam.
            features: for a captioner without encoder `features=` float32 [N, D] of its regions, and what else
                the captioner takes, such as `boxes=` float32 [N, 4].
        """
        if search is None:
            beam = beam or self.config.decoding.beam
            decoders = self.__dict__.setdefault("_decoders", {})
            if beam not in decoders:
                decoders[beam] = self.decoder(beam)
            search = decoders[beam]
        given = features if image is None else {"image": image, **features}
        token_ids, scores = search({name: np.asarray(value)[None] for name, value in given.items()})
        found = zip(token_ids.numpy()[0], scores.numpy()[0], strict=True)
        return [(self.tokenizer.decode(words), float(score)) for words, score in found if np.isfinite(score)]

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
            data: None loads that of the run.
            split: `train`, `validation` or `test`.
            run_data: batches of the data; its `skipped` then lists what could not be read.
            scorer: gives the scores; the default takes no Java, see `scoring.every_score_of`.

        Returns:
            What `scores_SPLIT.json` holds: `split`, `images`, `left_out` (ids of images that could not be
            read), `beam`, the scores, `ms_per_image` (on this machine, images read, in batches, once the
            search is compiled), the counts of `weight_counts`, and of them the encoder's where they leave it
            out (`encoder_weights`, `encoder_nonzero_weights`); and the captions.

        Raises:
            InputError: the split is empty or cannot be read.
        """
        data = data or load_data(self.config)
        records = data.split(split)
        if not records:
            raise InputError(f"the {split} split of {data.name} has no images: choose another with --split")
        run_data = run_data or RunData(self.config, data, self.tokenizer, self.captioner.encoder, progress)
        size = self.config.decoding.batch_size
        batches = run_data.image_batches(records, from_images=True, batch_size=size)
        decoder = self.decoder(beam)
        captions, milliseconds = caption_records(decoder, records, batches, self.tokenizer, progress=progress)
        scores = {
            "split": split,
            "images": len(captions),
            "left_out": left_out(records, captions),
            "beam": decoder.beam,
            **scorer(captions),
            "ms_per_image": milliseconds,
            **self._counts(),
        }
        return scores, captions

    def _counts(self) -> dict[str, int | float]:
        if self.config.pruning is not None and self.config.pruning.encoder:
            return weight_counts(self.captioner, with_encoder=True)
        counts, whole = weight_counts(self.captioner), weight_counts(self.captioner, with_encoder=True)
        names = ("weights", "nonzero_weights") if self.captioner.encoder else ()
        return {**counts, **{f"encoder_{name}": whole[name] - counts[name] for name in names}}


def left_out(records: Sequence[Record], captions: Sequence[ImageCaption]) -> list[str]:
    """Ids of the images that have no caption because they could not be read."""
    captioned = {caption.image_id for caption in captions}
    return [record.image_id for record in records if record.image_id not in captioned]


def describe(scores: dict[str, Any]) -> list[tuple[str, str]]:
    """Names and values of `evaluate`'s scores as a person wants to read them, for a table."""
    beam = f", beam {scores['beam']}" if scores["beam"] else ""
    rows = [("captions", f"{scores['split']}, {scores['images']} images{beam}{_remarks(scores)}")]
    names = ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "METEOR", "ROUGE-L", "ROUGE-1", "CIDEr", "SPICE")
    rows += [(name, f"{scores[name]:.3f}") for name in names if name in scores]
    rows += [(name, f"not computed: {why}") for name, why in scores.get("not_computed", {}).items()]
    rows.append(("exactly a reference", f"{scores['exact_match']:.1%}"))
    if "uniqueness" in scores:
        rows.append(("not said in training", f"{scores['uniqueness']:.1%}"))
    if "distinct" in scores:
        used = f"{scores['mean_length']:.1f} a caption, {scores['vocabulary_used']} different ones"
        if "vocabulary_share" in scores:
            used += f", {scores['vocabulary_share']:.1%} of those said in training"
        rows += [("different captions", f"{scores['distinct']:.1%}"), ("words", used)]
    if "weights" in scores:
        kept = f"{scores['nonzero_weights']:,} of {scores['weights']:,} weights".replace(",", " ")
        rows.append(("sparsity", f"{scores['sparsity']:.2%}, {kept} left"))
    if "ms_per_image" in scores:
        threads = f", on one of {scores['threads']} threads" if scores.get("threads", 1) > 1 else ""
        rows.append(("time", f"{scores['ms_per_image']:.1f} ms an image on this machine{threads}"))
    if "images_per_second" in scores:
        rows.append(("speed", f"{scores['images_per_second']:.1f} images a second, reading them included"))
    if "seconds" in scores:
        seconds = ", ".join(f"{name} {taken:.1f}" for name, taken in scores["seconds"].items())
        rows.append(("seconds of scoring", seconds))
    return rows


def _remarks(scores: dict[str, Any]) -> str:
    """What is to be known about the images behind the scores."""
    remarks = []
    for name, said in (("left_out", "cannot be read"), ("without_references", "have no word in a reference")):
        if scores.get(name):
            remarks.append(f"{len(scores[name])} that {said} left out ({shown(scores[name])})")
    if scores.get("empty_captions"):
        remarks.append(f"{scores['empty_captions']} captions without a word, which score 0")
    if scores.get("references_without_caption"):
        remarks.append(f"{scores['references_without_caption']} more images have references and no caption")
    return "".join(f"; {remark}" for remark in remarks)
