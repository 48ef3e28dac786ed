"""A run from its settings to its scores: training, resuming, evaluation."""

import contextlib
import importlib.util
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from tfsparsecap.captioning.data.records import CaptionData, listed
from tfsparsecap.captioning.data.tokenizers import Tokenizer
from tfsparsecap.captioning.inference.finished_run import FinishedRun
from tfsparsecap.captioning.inference.scoring import as_rows
from tfsparsecap.captioning.runs.checkpoints import load_checkpoint, load_part, named_weights, read_notes
from tfsparsecap.captioning.runs.run_folder import RunFolder, best_epoch, of_phase
from tfsparsecap.captioning.settings.build import RunData, load_data, make_captioner, make_tokenizer
from tfsparsecap.captioning.settings.contradictions import check_settings
from tfsparsecap.captioning.settings.precision import products
from tfsparsecap.captioning.settings.schema import Config
from tfsparsecap.captioning.training import distribution
from tfsparsecap.captioning.training.callbacks import (
    SaveEpoch,
    ShareLogs,
    TimeLeft,
    Validation,
    validation_records,
)
from tfsparsecap.captioning.training.cluster import Cluster
from tfsparsecap.captioning.training.distribution import lost_workers
from tfsparsecap.captioning.training.hidden_states import unlearned_weights
from tfsparsecap.captioning.training.other_runs import (
    load_initial_weights,
    load_start,
    load_teachers,
    newest_checkpoint,
    objects_of_run,
    save_teaching,
    start_at_frequencies,
    start_with,
    teacher_captions,
    teacher_data,
)
from tfsparsecap.captioning.training.phases import Phase, check_batches, make_loop, make_optimizer, phases
from tfsparsecap.captioning.training.run_pruning import (
    EncoderSlimming,
    final_captioner,
    fix_masks,
    gate_captioner,
    gate_for_fine_tuning,
    penalise_gammas,
    phases_differ,
    rewinds_to_initial_weights,
    train_encoder,
)
from tfsparsecap.core.files import atomic_path, atomic_write
from tfsparsecap.core.keras_internals import swap_averages
from tfsparsecap.errors import InputError
from tfsparsecap.pruning import PruningMethod
from tfsparsecap.pruning.feedback import ValidationDriven, pruning_callbacks

Report = Callable[[str], None]


def train_run(
    config: Config,
    *,
    resume: bool = False,
    runs: str | Path = "runs",
    verbose: int = 1,
    report: Report = print,
    cluster: Cluster | None = None,
) -> dict[str, Any]:
    """Trains and evaluates a captioner, and writes everything to `runs/NAME`.

    Args:
        config: the settings.
        resume: continue the run of that name. It ends with the same weights as an uninterrupted run.
        runs: folder of all runs.
        verbose: 0 silent, 1 progress bars, 2 a line per epoch.
        report: called with messages about the progress.
        cluster: the processes of `training.distribution=multi_worker`. Only the chief writes and evaluates.

    Returns:
        The run folder's path as `run`, and the scores on the test split, see `FinishedRun.evaluate`; without
        a readable test split, or in a process that is not the chief, the last row of `history.csv` instead.

    Raises:
        InputError: settings, data or folder are invalid, another process is training in the folder, or the
            workers do not match.
        WorkerLost: another worker has ended.
    """
    folder, is_chief = RunFolder(Path(runs) / config.name), cluster is None or cluster.is_chief
    distribution.check_cluster(config, cluster)
    check_settings(config)
    with contextlib.ExitStack() as stack:
        if is_chief:
            folder.check(config, resume)
            stack.enter_context(folder.locked())
            folder.check(config, resume)  # again: another process may have been faster
        keras.utils.set_random_seed(config.seed)
        checkpoint = newest_checkpoint(config, folder, report) if resume else None
        data = load_data(config)
        for line in (data.summary(), *data.notes):
            report(line)
        if resume and is_chief:
            folder.check_data(data)
        stack.enter_context(lost_workers(cluster))
        # Before TensorFlow computes anything: its processes cannot begin without each other.
        strategy = distribution.make_strategy(config.training.distribution, cluster)
        distribution.check_same_training(strategy, cluster, config, data, resume, checkpoint)
        if not is_chief:
            verbose, report = 0, lambda message: None  # the chief reports
        run = _Run(config, folder, data, checkpoint, resume, strategy, cluster, verbose, report)
        if is_chief and resume:
            folder.save_config(config)  # paths may have changed
        elif is_chief:
            folder.create(config, run.run_data.tokenizer, run.initial, data)
        if is_chief:
            save_teaching(run.teachers, run.run_data.taught, folder)
            run.write_skipped()
        run.train()
        result = run.finish() if is_chief else {"run": str(folder.path), **run.history[-1]}
        distribution.leave_together(strategy, cluster)
        return result


class _Run:
    """A captioner in training, and its folder. Invalid input raises in the constructor, which writes nothing
    into the folder."""

    def __init__(
        self,
        config: Config,
        folder: RunFolder,
        data: CaptionData,
        checkpoint: Path | None,
        resume: bool,
        strategy: tf.distribute.Strategy,
        cluster: Cluster | None,
        verbose: int,
        report: Report,
    ):
        self.config, self.folder, self.verbose, self.report = config, folder, verbose, report
        self.strategy, self.cluster, self.checkpoint = strategy, cluster, checkpoint
        self.phases = phases(config)
        self.history: list[dict[str, Any]] = read_notes(checkpoint)["history"] if checkpoint else []
        distribution.check_shares(self.phases, strategy.num_replicas_in_sync)
        tokenizer = self._make_captioner(data, resume)
        if not data.split("validation"):
            report(f"{data.name} has no validation split: no epoch is scored, and the last one is kept")
        elif config.training.restore_best and len(data.split("validation")) == 1:
            report("training.restore_best needs two validation images: the last epoch is kept")
        settings = config.model.encoder
        if settings and not (settings.weights or settings.trainable or config.training.start_from):
            report(
                "the encoder has random weights and is not trained: set model.encoder.weights, or"
                " model.encoder.trainable=true"
            )
        check_batches(self.phases, config, data)  # before hours of training, or of computing features
        encoder = self.captioner.encoder
        if self.checkpoint is not None and encoder is not None and not self.phases[0].from_images:
            load_part(self.checkpoint, encoder)  # another run may have trained it
        penalise_gammas(encoder, config.training.gamma_l2)
        slim = config.training.slim
        self.slimming = (
            EncoderSlimming(slim, encoder, data.split("train"))
            if slim is not None and encoder is not None
            else None
        )
        self.teachers = load_teachers(config, tokenizer, folder)
        self.run_data = RunData(
            config,
            data,
            tokenizer,
            self.captioner.encoder,
            progress=verbose == 1,
            teachers=[teacher_data(run, config, data, progress=verbose == 1) for run in self.teachers],
            objects=self.captioner.objects,
        )
        if self.phases[0].kind != "scst":  # rewards need no captions of teachers
            self.run_data.taught = teacher_captions(self.teachers, self.run_data, folder.teacher_captions)
        if config.model.encoder is None and data.split("test"):
            self.run_data.images(data.split("test"), from_images=False)  # reads the headers of the files
        reached = self._reached
        self.batches = self._training_batches(reached if reached.kind == "fine_tune" else self.phases[0])
        if self.batches.cut:
            report(
                f"{self.batches.cut} of {self.batches.examples} captions are longer than"
                f" data.max_length={config.data.max_length}, which counts their end as a word, and are cut"
            )
        if checkpoint is None and config.training.start_from is None:
            start_at_frequencies(self.captioner, self.batches.targets)
        self.initial = named_weights(self.captioner) if config.training.keep_initial else {}
        self._prune()
        if skipped := self._skipped():
            names = listed(entry.where for entry in skipped)
            report(f"{len(skipped)} unreadable records are skipped ({names}); skipped.txt lists all of them")

    @property
    def pruning(self) -> PruningMethod | None:
        return getattr(self.captioner, "pruning", None)

    @property
    def target(self) -> float | None:
        """The sparsity that the best epoch must have; None for any."""
        if self.pruning is not None:
            return self.pruning.target
        # With scheme B, nothing is pruned before fine-tuning; none of these epochs can be the best.
        return self.config.pruning.sparsity if self.config.pruning else None

    @property
    def _reached(self) -> Phase:
        """The phase of the checkpoint, or the first one."""
        name = read_notes(self.checkpoint)["phase"] if self.checkpoint else self.phases[0].name
        return next(phase for phase in self.phases if phase.name == name)

    def train(self) -> None:
        """Runs all phases, starting from the checkpoint if there is one."""
        reached, at = self._reached, self.phases.index(self._reached)
        if self.checkpoint is not None and self.slimming is not None:
            self.slimming.load(
                self.folder.slim_encoder(reached.iteration or self.slimming.settings.iterations)
            )
        for phase in self.phases[:at]:
            self._gate(phase, restored=True)
        for phase in self.phases[at:]:
            self._train_phase(phase, self.checkpoint if phase is reached else None)

    def finish(self) -> dict[str, Any]:
        """Writes the final model, evaluates it and writes the scores."""
        config, folder, data = self.config, self.folder, self.run_data.data
        rows = [row for row in self.history if folder.checkpoint(row["epoch"]).is_file()]
        last = of_phase(rows, self.history[-1]["phase"])
        best = best_epoch(last if self._phases_differ else rows, self.target)
        if config.training.restore_best and best is not None:
            self.report(f"restoring the weights of epoch {best}, the best on validation")
            load_checkpoint(folder.checkpoint(best), self.captioner)
        tokenizer = self.run_data.tokenizer
        finished = FinishedRun(final_captioner(self.captioner, config, tokenizer), tokenizer, config)
        with atomic_path(folder.model) as temporary:
            finished.captioner.save(temporary)
        if self.slimming is not None:
            self.slimming.save(folder.encoder)
            self.report(
                f"runs that start from this one need model.encoder.slimmed={folder.encoder} and"
                " training.slim=null"
            )
        result = self.history[-1]
        try:
            if not data.split("test"):
                raise InputError(f"{data.name} has no test split")
            result, captions = finished.evaluate(data, progress=self.verbose == 1, run_data=self.run_data)
            folder.write_json("captions_test", as_rows(captions))
            folder.write_json("scores_test", result)
        except InputError as error:  # the trained model is kept
            self.report(f"{folder.model} was not evaluated: {error}")
        self.write_skipped()  # again: more unreadable records may have been found
        return {"run": str(folder.path), **result}

    def write_skipped(self) -> None:
        """Lists all skipped records in `skipped.txt`."""
        if skipped := self._skipped():
            atomic_write(self.folder.path / "skipped.txt", "".join(f"{entry}\n" for entry in skipped))

    def _skipped(self) -> list:
        return [*self.run_data.data.skipped, *self.run_data.skipped]

    def _make_captioner(self, data, resume: bool) -> Tokenizer:
        """Makes the captioner, with the weights of `training.start_from` if given; returns its tokenizer."""
        config, where = self.config, self.config.training.start_from
        start = load_start(config) if where is not None and self.checkpoint is None else None
        if start is not None:
            tokenizer = start.tokenizer
        elif resume:
            tokenizer = self.folder.load_tokenizer(config.data.radix_base)
        else:
            tokenizer = make_tokenizer(config, data)
        with self.strategy.scope():
            published = start is None and self.checkpoint is None  # otherwise replaced soon
            objects = objects_of_run(config, data, start, self.checkpoint, self.report)
            self.captioner = make_captioner(config, tokenizer, objects=objects, weights=published)
        if self.strategy.num_replicas_in_sync > 1:
            distribution.synchronize_batch_normalization(self.captioner)
        if start is not None:
            start_with(start.captioner, self.captioner, config, self.report)
        return tokenizer

    def _training_batches(self, phase: Phase):
        if phase.kind == "scst":
            self.run_data.freeze_encoder()
        return self.run_data.training_batches(
            from_images=phase.from_images, batch_size=phase.batch_size, rewards=phase.kind == "scst"
        )

    def _prune(self) -> None:
        initial = None
        if rewinds_to_initial_weights(self.config) and self.checkpoint is None:
            initial = load_initial_weights(self.config, self.captioner)
        with self.strategy.scope():
            gate_captioner(
                self.captioner,
                self.config,
                self._steps(self.phases[0]),
                kind=self.phases[0].kind,
                initial_weights=initial,
                restored=self.checkpoint is not None,
            )
        Validation.check_metric(self.pruning, self.config, self.run_data.data)
        self._report_gates()

    def _report_gates(self) -> None:
        if self.pruning is not None:
            self.report(self.pruning.describe())

    def _train_phase(self, phase: Phase, checkpoint: Path | None) -> None:
        config, later = self.config.training, phase.kind != self.phases[0].kind
        removes = bool(phase.iteration) and checkpoint is None
        before = getattr(self.captioner, "optimizer", None)
        with self.strategy.scope():
            if removes and self.slimming is not None:
                self.report(self.slimming.begin(phase.iteration, self.folder))
            if later:
                self._gate(phase, restored=checkpoint is not None)
                if checkpoint is not None:
                    load_checkpoint(checkpoint, self.captioner)  # features depend on the encoder's weights
                self.batches = self._training_batches(phase)
                self._report_gates()
            steps, encoder = self._steps(phase), self.captioner.encoder
            own_rate = encoder.trainable_variables if phase.kind == "train" and encoder is not None else ()
            hidden = config.teacher_loss == "hidden" and phase.kind != "scst"
            unlearned = unlearned_weights(self.captioner) if hidden else ()
            optimizer = make_optimizer(config, steps, phase, encoder_variables=own_rate, unlearned=unlearned)
            self.captioner.compile(optimizer)  # a pruned model wraps the optimizer
        teachers = [run.captioner for run in self.teachers]
        loop = make_loop(self.captioner, phase.kind, self.config, self.run_data, teachers, self.strategy)
        if removes and self.slimming is not None and before is not None:
            self.slimming.carry_over(before, self.captioner.optimizer)
        if checkpoint is not None:
            load_checkpoint(checkpoint, self.captioner, self.captioner.optimizer)
            # A method that stopped the first phase must not stop the next ones.
            if not later and isinstance(self.pruning, ValidationDriven) and self.pruning.finished:
                return
        variables = [*self.captioner.variables, *self.captioner.optimizer.variables]
        distribution.check_same_weights(self.strategy, variables)
        done = sum(row["phase"] != phase.name for row in self.history)
        callbacks = self._callbacks(phase, resumed=checkpoint is not None)
        options: Any = {"first_epoch": len(self.history), "callbacks": callbacks, "verbose": self.verbose}
        with products(config.precision):
            loop.run(self.batches.epoch, epochs=done + phase.epochs, **options)

    def _gate(self, phase: Phase, *, restored: bool) -> None:
        """Changes the gates at the beginning of fine-tuning or of the training on rewards."""
        if phase.kind == "fine_tune":
            train_encoder(self.captioner, phase.kind)
            gate_for_fine_tuning(self.captioner, self.config, self._steps(phase), restored=restored)
        elif phase.kind == "scst":
            if self.pruning is not None:
                fix_masks(self.captioner, self.pruning.block_shape, restored=restored)
            train_encoder(self.captioner, phase.kind)

    def _steps(self, phase: Phase) -> int:
        """Steps of all phases of a kind, which share a schedule."""
        epochs = sum(other.epochs for other in self.phases if other.kind == phase.kind)
        return epochs * replace(self.batches, batch_size=phase.batch_size).steps_per_epoch

    @property
    def _phases_differ(self) -> bool:
        """Whether epochs of different phases cannot be compared, or restored into the last phase's model."""
        return phases_differ(self.config) or self.slimming is not None

    def _callbacks(self, phase: Phase, *, resumed: bool) -> list[keras.callbacks.Callback]:
        config, same_kind = self.config, [other for other in self.phases if other.kind == phase.kind]
        more_epochs = sum(other.epochs for other in same_kind if other.iteration > phase.iteration)
        callbacks: list[keras.callbacks.Callback] = [TimeLeft(self.report, more_epochs)]
        if config.training.average_decay is not None:
            # Comes first, so that validation and checkpoints find the averages in the model.
            callbacks.append(swap_averages(in_model=resumed))
        data, is_chief = self.run_data, self.cluster is None or self.cluster.is_chief
        if is_chief and (records := validation_records(config, data.data)):
            batches = data.image_batches(records, from_images=phase.from_images)
            length = config.data.max_length
            callbacks.append(Validation(self.captioner, records, batches, data.tokenizer, length))
        if is_chief and importlib.util.find_spec("tensorboard"):
            callbacks.append(keras.callbacks.TensorBoard(str(self.folder.logs), write_graph=False))
        if self.cluster is not None:
            callbacks.append(ShareLogs(self.strategy))
        if self.pruning is not None:
            callbacks += pruning_callbacks(self.captioner.name, self.pruning)
        save = SaveEpoch(
            self.folder,
            self.history,
            phase.name,
            sparsity=lambda: self.target,
            phases_differ=self._phases_differ,
            writes=is_chief,
        )
        return [*callbacks, save]
