"""A run from its settings to its scores: trained, stopped and gone on with, finished."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np

from tfsparsecap.data.records import shown
from tfsparsecap.data.tokenizers import Tokenizer
from tfsparsecap.errors import InputError
from tfsparsecap.files import atomic_path, atomic_write
from tfsparsecap.inference.finished_run import FinishedRun
from tfsparsecap.inference.scoring import as_rows
from tfsparsecap.models.captioner import Captioner
from tfsparsecap.pruning import strip_pruning
from tfsparsecap.pruning.feedback import Feedback
from tfsparsecap.rewards.reward import CaptionReward
from tfsparsecap.runs.checkpoints import (
    load_checkpoint,
    named_weights,
    newest_whole,
    read_notes,
)
from tfsparsecap.runs.run_data import RunData, caches_features
from tfsparsecap.runs.run_folder import RunFolder, best_epoch, of_phase
from tfsparsecap.settings.build import load_data, make_captioner, make_tokenizer
from tfsparsecap.settings.checks import check_settings
from tfsparsecap.settings.schema import Config
from tfsparsecap.summary.nonzeros import weight_counts
from tfsparsecap.training.callbacks import SaveEpoch, TensorBoard, TimeLeft, Validation, ends_early
from tfsparsecap.training.gating import (
    draws_from_run,
    gate_captioner,
    gate_for_fine_tuning,
    phases_differ,
)
from tfsparsecap.training.loop import Loop, make_optimizer, make_strategy
from tfsparsecap.training.scst import SCSTLoop
from tfsparsecap.training.start import initial_weights, load_start, take_weights


@dataclass(frozen=True)
class Phase:
    """Epochs with one optimizer: the decoder's (or everything's) training, then fine-tuning of both."""

    name: str
    epochs: int
    batch_size: int
    learning_rate: float
    schedule: str
    from_images: bool


def phases(config: Config) -> list[Phase]:
    """The phases of a run in their order."""
    training, tuning = config.training, config.training.fine_tune
    first = Phase(
        "train",
        training.epochs,
        training.batch_size,
        training.learning_rate,
        training.schedule,
        not caches_features(config),
    )
    if not tuning.epochs:
        return [first]
    size = tuning.batch_size or training.batch_size
    return [first, Phase("fine_tune", tuning.epochs, size, tuning.learning_rate, "constant", True)]


def train_run(
    config: Config,
    *,
    resume: bool = False,
    runs: str | Path = "runs",
    verbose: int = 1,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Trains, evaluates and leaves everything in `runs/NAME`.

    Args:
        config: the settings.
        resume: go on with the run of that name, to the same weights as if it had never stopped.
        runs: folder of all runs.
        verbose: 0 silent, 1 progress bars, 2 a line an epoch.
        say: gets sentences about what is going on.

    Returns:
        The scores on the test split, see `FinishedRun.evaluate`; the last epoch's row of `history.csv` where
        there is no test split. With `run`, the folder.

    Raises:
        InputError: something about settings, data or folder is wrong, or another training is at work in the
            folder.
    """
    folder = RunFolder(Path(runs) / config.name)
    folder.check(config, resume)
    check_settings(config)
    with contextlib.ExitStack() as stack:
        if resume:
            stack.enter_context(folder.held())
        return _train(config, folder, resume, verbose, say, stack)


def _train(
    config: Config,
    folder: RunFolder,
    resume: bool,
    verbose: int,
    say: Callable[[str], None],
    stack: contextlib.ExitStack,
) -> dict[str, Any]:
    """`train_run` in a folder that is checked; a new one is held by `stack` from when it is made."""
    keras.utils.set_random_seed(config.seed)
    data = load_data(config)
    for sentence in (data.summary(), *data.notes):
        say(sentence)
    start = None
    resumed = resume and newest_whole(folder.checkpoint_files())[0] is not None
    if config.training.start_from is not None and not resumed:
        start = load_start(config)
        tokenizer = start.tokenizer
    else:
        tokenizer = folder.load_tokenizer(config.data.radix_base) if resume else make_tokenizer(config, data)
    strategy = make_strategy(config.training.distribution)
    with strategy.scope():
        captioner = make_captioner(config, tokenizer, weights=start is None)
        if start is not None:
            take_weights(captioner, start.captioner, config.training.start_from)
            say(f"starting with the weights of {config.training.start_from}")
            zeros = weight_counts(captioner)["sparsity"]
            if config.pruning is None and zeros > 0.2:
                say(
                    f"{zeros:.0%} of its weights are zero and will not stay so: pruning.method=frozen"
                    f" pruning.sparsity={zeros:.3g} keeps them"
                )
    run_data = RunData(config, data, tokenizer, captioner.encoder, progress=verbose == 1)
    training = _Training(config, folder, run_data, captioner, strategy, verbose, say)
    training.prepare(resumed)
    _name_skipped(folder, run_data, say, write=False)
    if resume:
        folder.save_config(config)  # the data may lie elsewhere now
    else:
        folder.create(config, tokenizer, training.initial)
        stack.enter_context(folder.held())
    _name_skipped(folder, run_data, say, write=True)
    training.run(resume)

    rows = training.history
    best = best_epoch(of_phase(rows, rows[-1]["phase"]) if phases_differ(config) else rows, training.target)
    if config.training.restore_best and best is not None:
        say(f"taking the weights of epoch {best}, the best on validation")
        load_checkpoint(folder.checkpoint(best), captioner)
    trained = FinishedRun(_finished(captioner, config, tokenizer), tokenizer, config)
    with atomic_path(folder.model) as temporary:
        trained.captioner.save(temporary)
    if not data.split("test"):
        say(f"{data.name} has no test split: {folder.model} was not evaluated")
        _name_skipped(folder, run_data, say, write=True)
        return {"run": str(folder.path), **training.history[-1]}
    try:
        scores, captions = trained.evaluate(data, progress=verbose == 1, run_data=run_data)
    except InputError as error:
        # What was trained is kept, and said, whatever is wrong with the test pictures.
        say(f"{folder.model} was not evaluated: {error}")
        _name_skipped(folder, run_data, say, write=True)
        return {"run": str(folder.path), **training.history[-1]}
    # Images of other splits, and what was wrong inside files, came to light since.
    _name_skipped(folder, run_data, say, write=True)
    folder.write_json("captions_test", as_rows(captions))
    folder.write_json("scores_test", scores)
    return {"run": str(folder.path), **scores}


class _Training:
    """The phases of a run over one captioner."""

    def __init__(self, config, folder, run_data, captioner, strategy, verbose, say):
        self.config, self.folder, self.run_data, self.captioner = config, folder, run_data, captioner
        self.strategy, self.verbose, self.say = strategy, verbose, say
        self.history: list[dict[str, Any]] = []
        self.initial: dict[str, np.ndarray] = {}

    @property
    def target(self) -> float | None:
        """The sparsity that an epoch must have to be the best; None where any will do."""
        pruning = getattr(self.captioner, "pruning", None)
        if pruning is None:
            # In scheme B nothing is pruned at first, and none of those epochs is what was asked for.
            return self.config.pruning.sparsity if self.config.pruning else None
        return pruning.target

    def prepare(self, resumed: bool) -> None:
        """Reads the pictures and puts on the gates: what can fail does so before the folder is made."""
        first = phases(self.config)[0]
        test = self.run_data.data.split("test")
        if self.config.model.encoder is None and test:
            self.run_data.images(test, from_images=False)  # looks at the headers of their files
        self.batches = self.run_data.training_batches(
            from_images=first.from_images, batch_size=first.batch_size
        )
        initial = None
        if self.config.training.keep_initial:
            self.initial = named_weights(self.captioner)
        if draws_from_run(self.config) and not resumed:
            initial = initial_weights(self.config, self.captioner)
        with self.strategy.scope():
            gate_captioner(
                self.captioner,
                self.config,
                first.epochs * self.batches.steps_per_epoch,
                initial_weights=initial,
                restored=resumed,
            )
        self._check_metric()
        self._say_gates()

    def _check_metric(self) -> None:
        """Before the training: whether validation gives the score that the pruning goes by, if any."""
        pruning = getattr(self.captioner, "pruning", None)
        if pruning is None or not pruning.has_own("on_validation_end"):
            return
        limit = self.config.training.validation_images
        images = len(self.run_data.data.split("validation")[:limit])
        names = [name for name in Validation.NAMES if images >= Validation.FEWEST[name]]
        if pruning.metric in Validation.NAMES and pruning.metric not in names:
            what = "only one image is validated, which has none" if images else "nothing is validated"
            raise InputError(
                f"pruning.method={self.config.pruning.method} goes by {pruning.metric}, and {what}: set"
                " training.validation_images higher, and give data with a validation split"
            )
        pruning.check_metric(["loss", *names])

    def _say_gates(self) -> None:
        pruning = getattr(self.captioner, "pruning", None)
        if pruning is not None:
            self.say(pruning.describe())

    def run(self, resume: bool) -> None:
        self.initial = {}
        checkpoint, reached = self._last_checkpoint() if resume else (None, "")
        order = [phase.name for phase in phases(self.config)]
        for phase in phases(self.config):
            if checkpoint and order.index(phase.name) < order.index(reached):
                continue
            self._run_phase(phase, checkpoint if phase.name == reached else None)

    def _last_checkpoint(self) -> tuple[Path | None, str]:
        path, broken = newest_whole(self.folder.checkpoint_files())
        for damaged in broken:
            self.say(f"{damaged} is damaged (a stopped write?) and is not used")
        if path is None:
            self.say("there is no whole checkpoint yet: starting from the beginning")
            return None, ""
        notes = read_notes(path)
        self.history = notes["history"]
        self.say(f"going on after epoch {notes['epoch']}")
        return path, notes["phase"]

    def _run_phase(self, phase: Phase, checkpoint: Path | None) -> None:
        config = self.config.training
        if phase.name == "fine_tune":
            self.captioner.encoder.trainable = True
            self.batches = self.run_data.training_batches(from_images=True, batch_size=phase.batch_size)
        steps = phase.epochs * self.batches.steps_per_epoch
        if phase.name == "fine_tune":
            with self.strategy.scope():
                gate_for_fine_tuning(self.captioner, self.config, steps, restored=checkpoint is not None)
            self._say_gates()
        with self.strategy.scope():
            optimizer = make_optimizer(
                steps,
                learning_rate=phase.learning_rate,
                schedule=phase.schedule,
                final_learning_rate=config.final_learning_rate,
                warmup_steps=config.warmup_steps,
                beta_2=config.adam_beta_2,
                epsilon=config.adam_epsilon,
                weight_decay=config.weight_decay,
                clip_norm=config.clip_norm,
                clip_value=config.clip_value,
                replicas=self.strategy.num_replicas_in_sync,
            )
            if getattr(self.captioner, "pruning", None) is not None:
                optimizer = self.captioner.pruning.wrap(optimizer)
        loop = self._loop(optimizer)
        if checkpoint is not None:
            load_checkpoint(checkpoint, self.captioner, optimizer)
            if ends_early(self.history, phase.name, self.target, config.early_stopping):
                return
            pruning = getattr(self.captioner, "pruning", None)
            # In fine-tuning a method that stopped the phase before has nothing to say any more.
            if phase.name == "train" and pruning is not None and pruning.finished:
                return
        before = sum(row["phase"] != phase.name for row in self.history)
        loop.run(
            self.batches.epoch,
            epochs=before + phase.epochs,
            first_epoch=len(self.history),
            callbacks=self._callbacks(phase, optimizer),
            verbose=self.verbose,
        )

    def _loop(self, optimizer: keras.optimizers.Optimizer) -> Loop:
        config = self.config.training
        if config.scst is None:
            return Loop(
                self.captioner, optimizer, strategy=self.strategy, label_smoothing=config.label_smoothing
            )
        return SCSTLoop(
            self.captioner,
            optimizer,
            reward=CaptionReward(
                self.run_data.data.split("train"),
                self.run_data.tokenizer,
                cider_d=config.scst.cider_d,
                bleu_4=config.scst.bleu_4,
                count_end=config.scst.count_end,
            ),
            max_length=self.config.data.max_length,
            samples=config.scst.samples,
            baseline=config.scst.baseline,
            temperature=config.scst.temperature,
            seed=self.config.seed,
            strategy=self.strategy,
        )

    def _callbacks(self, phase: Phase, optimizer) -> list[keras.callbacks.Callback]:
        callbacks = [TimeLeft(self.say)]
        limit = self.config.training.validation_images
        records = self.run_data.data.split("validation")[:limit]
        if records:
            batches = self.run_data.image_batches(records, from_images=phase.from_images)
            callbacks.append(
                Validation(
                    self.captioner, records, batches, self.run_data.tokenizer, self.config.data.max_length
                )
            )
        if TensorBoard.available():
            callbacks.append(TensorBoard(self.folder.logs))
        pruning = getattr(self.captioner, "pruning", None)
        if pruning is not None and pruning.has_own("on_validation_end"):
            callbacks.append(Feedback(pruning))
        patience = self.config.training.early_stopping
        callbacks.append(
            SaveEpoch(
                self.folder,
                optimizer,
                self.history,
                phase.name,
                lambda: self.target,
                patience,
                phases_differ(self.config),
            )
        )
        return callbacks


def _finished(captioner: Captioner, config: Config, tokenizer: Tokenizer) -> Captioner:
    """The captioner as it is kept: without gates, in float32, on one device."""
    captioner = strip_pruning(captioner)
    if config.training.precision == "float32" and config.training.distribution == "default":
        return captioner
    plain = make_captioner(config, tokenizer, precision="float32", weights=False)
    plain.set_weights(captioner.get_weights())
    return plain


def _name_skipped(folder: RunFolder, run_data: RunData, say: Callable[[str], None], write: bool) -> None:
    """Says how many records were left out; names all of them in `skipped.txt` once the folder is there."""
    skipped = [*run_data.data.skipped, *run_data.skipped]
    if skipped and write:
        atomic_write(folder.path / "skipped.txt", "".join(f"{entry}\n" for entry in skipped))
    elif skipped:
        names = shown(entry.where for entry in skipped)
        say(
            f"{len(skipped)} bad records are left out ({names}); skipped.txt in the run folder names them all"
        )
