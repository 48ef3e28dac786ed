"""The training loop and its compiled steps, for one device or several (`tf.distribute`).

Captioners also train with `captioner.compile("adam")` and `captioner.fit(batches)`, on the same loss. There,
Keras's optimizers square and clip the gradients of each occurrence of a word by themselves; here, their sum.
Runs do not use `fit`: in Keras 3 it fails under `MultiWorkerMirroredStrategy`; it cannot order the data by
epoch number, which a resumed run needs; and it does not report how long a step waits for data. The loop calls
ordinary `keras.callbacks`.
"""

import re
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf

from tfsparsecap.captioning.data.image_sources import teacher_input
from tfsparsecap.captioning.data.pipeline import unwrap_input_errors
from tfsparsecap.captioning.models.captioner_base import Captioner
from tfsparsecap.core.keras_internals import nested_layers, take_complete_gradients
from tfsparsecap.errors import InputError

Step = Callable[..., Any]
_FAILED = ("Detected unsupported operations", "tf2xla conversion failed")


def compiled_step(
    step: Step,
    models: Sequence[keras.Model],
    *,
    jit_compile: bool | Literal["auto"],
    strategy: tf.distribute.Strategy,
) -> Step:
    """A training step as a function in a graph, which XLA compiles if the setting asks for it.

    Args:
        step: takes a batch, and contains TensorFlow operations only.
        models: what the step calls; `pruning` of the first one is part of the step.
        jit_compile: True always uses XLA; False never does; `auto` does on a GPU, on one device, with models
            and pruning methods that support it. If XLA then fails, `auto` warns and continues without.
        strategy: the distribution strategy.

    Raises:
        InputError: `jit_compile` is True, and the step contains something that XLA cannot compile; also when
            the returned function is called.

    Examples:
        >>> dense = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, kernel_initializer="ones")])
        >>> strategy = tf.distribute.get_strategy()
        >>> compiled_step(dense, [dense], jit_compile=True, strategy=strategy)(tf.ones([1, 2])).numpy()
        array([[2.]], dtype=float32)
    """
    required = jit_compile is True
    obstacle = _obstacle(models, strategy) if jit_compile else None
    if required and obstacle:
        raise _not_compiled(obstacle)
    if not required and (not jit_compile or obstacle or not tf.config.list_logical_devices("GPU")):
        return tf.function(step)
    function = tf.function(step, jit_compile=True)

    def run(batch: Any) -> Any:
        nonlocal function
        try:
            return function(batch)
        except tf.errors.OpError as error:
            reason = str(error)
            if required and any(text in reason for text in _FAILED):
                raise _not_compiled(_operations(reason)) from error
            if required:
                raise
        # A step changes variables only when all of it has succeeded, so it can be repeated. An error that is
        # not XLA's comes again.
        warnings.warn(
            f"XLA failed ({reason.splitlines()[0][:200]}): the training continues without it", stacklevel=2
        )
        function = tf.function(step)
        return function(batch)

    return run


def _obstacle(models: Sequence[keras.Model], strategy: tf.distribute.Strategy) -> str | None:
    """What XLA cannot compile, as known before; None for nothing."""
    if strategy.num_replicas_in_sync > 1:
        return f"steps of {strategy.num_replicas_in_sync} devices together"
    method = getattr(models[0], "pruning", None)
    if method is not None and not method.supports_jit:
        return f"the pruning method {type(method).__name__}"
    layers = [layer for model in models for layer in nested_layers(model)]
    layer = next((layer for layer in layers if not layer.supports_jit), None)
    return layer and f"the layer {layer.path} ({type(layer).__name__})"


def _operations(message: str) -> str:
    """What XLA cannot compile, according to TensorFlow's message."""
    operations = dict.fromkeys(re.findall(r"(\w+) \(No registered", message))
    return f"TensorFlow's {', '.join(operations)}" if operations else f"the step ({message.splitlines()[0]})"


def _not_compiled(what: str) -> InputError:
    return InputError(
        f"training.jit_compile is true, but XLA cannot compile {what}: set training.jit_compile=auto or false"
    )


#: After so many steps the logs are fetched from the device, the progress bar shows them, and the loss is
#: checked. In between, the host does not wait for the device.
STEPS_PER_REPORT = 25


class Loop:
    """Training steps that minimise the captioner's `compute_loss`.

    Args:
        model: a captioner, compiled with an optimizer inside the scope of the strategy.
        teachers: captioners whose predicted probabilities, averaged, are targets, too. Teacher N gets the
            inputs named `teacherN_NAME`.
        strategy: distribution strategy; None takes the current one.
        jit_compile: whether XLA compiles the steps, see `compiled_step`.

    Raises:
        InputError: `jit_compile` is True, but XLA cannot compile the steps.

    Attributes:
        train_step: one compiled step, from a batch to logs (float32 scalars), among them `loss`.

    Examples:
        >>> captioner.compile(keras.optimizers.Adam(1e-3))  # doctest: +SKIP
        >>> Loop(captioner).run(lambda epoch: batches, epochs=3)  # doctest: +SKIP
    """

    #: Logs that are averaged over the steps of an epoch; of the others, the last value is reported.
    averaged = frozenset({"loss"})

    def __init__(
        self,
        model: Captioner,
        *,
        teachers: Sequence[Captioner] = (),
        strategy: tf.distribute.Strategy | None = None,
        jit_compile: bool | Literal["auto"] = False,
    ):
        self.model, self.optimizer, self.teachers = model, model.optimizer, teachers
        self.strategy = strategy or tf.distribute.get_strategy()
        with self.strategy.scope():
            self.optimizer.build(model.trainable_variables)
        self._several = self.strategy.num_replicas_in_sync > 1
        self.train_step = compiled_step(
            self._step, [model, *teachers], jit_compile=jit_compile, strategy=self.strategy
        )

    def run(
        self,
        batches: Callable[..., tf.data.Dataset],
        *,
        epochs: int,
        first_epoch: int = 0,
        callbacks: Iterable[keras.callbacks.Callback] = (),
        verbose: int = 0,
    ) -> None:
        """Trains from `first_epoch` (counted from 0) up to, but not including, `epochs`.

        Args:
            batches: epoch -> dataset of `(inputs, targets)`, such as `data.pipeline.TrainingBatches.epoch`.
                It must return the same batches for the same epoch, so that a resumed run has the same result.
                With several devices it is called as `batches(epoch, context=context)` and returns batches
                for one device each, in turn.
            epochs: total number of epochs, including those before a resumed run.
            first_epoch: the first epoch to train.
            callbacks: any Keras callbacks. `on_epoch_end` gets the mean `loss`, the logs of the pruning
                method, `seconds`, and `data_wait`: the fraction of the epoch spent waiting for data. With a
                callback that has `on_train_batch_end`, the host waits for the device in every step; Keras's
                progress bar and `TensorBoard` get logs in every 25th step only.
            verbose: 0 silent, 1 a progress bar, 2 a line per epoch.

        Raises:
            InputError: the loss is not finite, or an epoch has no batches.
        """
        if first_epoch >= epochs:
            return
        steps = int(batches(first_epoch).cardinality())
        hooks = keras.callbacks.CallbackList(
            list(callbacks),
            add_progbar=True,
            model=self.model,
            verbose=verbose,
            epochs=epochs,
            steps=steps if steps >= 0 else None,
        )
        self.model.stop_training = False
        hooks.on_train_begin()
        logs = {}
        for epoch in range(first_epoch, epochs):
            hooks.on_epoch_begin(epoch)
            logs = self._epoch(self._distributed(batches, epoch), hooks, epoch)
            hooks.on_epoch_end(epoch, logs)
            if self.model.stop_training:
                break
        hooks.on_train_end(logs)

    def _distributed(self, batches: Callable[..., tf.data.Dataset], epoch: int) -> Iterable:
        if not self._several:
            return batches(epoch)
        return self.strategy.distribute_datasets_from_function(
            lambda context: batches(epoch, context=context)
        )

    def _epoch(self, dataset: Iterable, callbacks: keras.callbacks.CallbackList, epoch: int) -> dict:
        logs, every_step = StepLogs(epoch), any(map(_needs_each_step, callbacks.callbacks))
        waited, began = 0.0, time.perf_counter()
        iterator = iter(dataset)
        while True:
            requested = time.perf_counter()
            with unwrap_input_errors():
                batch = next(iterator, None)
            waited += time.perf_counter() - requested
            if batch is None:
                break
            step = len(logs)
            callbacks.on_train_batch_begin(step)
            logs.add(self.train_step(batch))
            due = every_step or step == 0 or len(logs) % STEPS_PER_REPORT == 0
            callbacks.on_train_batch_end(step, logs.fetch()[-1] if due else {})
        if not len(logs):
            raise InputError(
                "there are fewer training captions than training.batch_size: lower it or give more data"
            )
        rows = logs.fetch()
        means = {name: float(np.mean([row[name] for row in rows])) for name in self.averaged & rows[0].keys()}
        seconds = time.perf_counter() - began
        return {**rows[-1], **means, "seconds": seconds, "data_wait": waited / seconds}

    def _step(self, batch) -> dict[str, tf.Tensor]:
        names: list[str] = []

        def replica_step(*batch) -> tf.Tensor:
            logs = self._replica_step(*batch)
            names[:] = logs
            return tf.stack(list(logs.values()))

        take_complete_gradients(self.optimizer, self._several)
        try:
            values = self.strategy.run(replica_step, args=batch)
        finally:
            take_complete_gradients(self.optimizer, False)
        values = self.strategy.reduce(tf.distribute.ReduceOp.SUM, values, axis=None)
        logs = dict(zip(names, tf.unstack(values, len(names)), strict=True))
        pruning = getattr(self.model, "pruning", None)
        return {**logs, **pruning.logs()} if pruning is not None else logs

    def _replica_step(self, inputs: dict, targets: tf.Tensor) -> dict[str, tf.Tensor]:
        """One step on one device; the logs of all devices are summed."""
        taught = self._teach(inputs)
        with tf.GradientTape() as tape:
            loss = self._loss({**inputs, **taught}, targets)
            scaled = self.optimizer.scale_loss(loss)
        self._apply_gradients(tape, scaled)
        return {"loss": loss}

    def _loss(self, inputs: dict, targets: tf.Tensor) -> tf.Tensor:
        return self.model.compute_loss(inputs, targets, self.model(inputs, training=True))

    def _teach(self, inputs: dict) -> dict:
        """What the teachers add to the inputs: the mean of their probabilities, float32 [B, T, V]."""
        probabilities = []
        for number, teacher in enumerate(self.teachers):
            theirs = self._teacher_inputs(inputs, number)
            logits = teacher(theirs, training=False)
            probabilities.append(tf.nn.softmax(tf.cast(logits, tf.float32)))
        if not probabilities:
            return {}
        mean = tf.stop_gradient(tf.add_n(probabilities) / len(probabilities))
        return {"teacher_probabilities": mean}

    def _teacher_inputs(self, inputs: dict, number: int) -> dict:
        prefix = teacher_input(number, "")
        own = {key.removeprefix(prefix): value for key, value in inputs.items() if key.startswith(prefix)}
        return {**own, "tokens": inputs["tokens"]}

    def _apply_gradients(self, tape: tf.GradientTape, scaled: tf.Tensor) -> None:
        """Updates the variables with the gradients of all devices."""
        replica, variables = tf.distribute.get_replica_context(), self.model.trainable_variables
        gradients = tape.gradient(scaled, [variable.value for variable in variables])
        # A word that occurs several times has as many slices, which a Keras optimizer would square and clip
        # one by one.
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients if gradient is not None]
        if self._several:
            # A Keras optimizer would clip first and then sum over the devices, and a pruning method needs the
            # sum, too. TensorFlow exchanges the whole list at once.
            dense = replica.all_reduce(tf.distribute.ReduceOp.SUM, dense)
        complete = iter(dense)
        gradients = [None if gradient is None else next(complete) for gradient in gradients]
        self.optimizer.apply(gradients, variables)


class StepLogs:
    """The logs of the steps of an epoch, which stay on the device until they are fetched.

    Args:
        epoch: number of the epoch from 0, for messages.

    Examples:
        >>> logs = StepLogs(epoch=0)
        >>> logs.add({"loss": tf.constant(0.5)})
        >>> len(logs), logs.fetch()
        (1, [{'loss': 0.5}])
    """

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self._fetched: list[dict[str, float]] = []
        self._pending: list[dict[str, tf.Tensor]] = []

    def __len__(self) -> int:
        return len(self._fetched) + len(self._pending)

    def add(self, logs: dict[str, tf.Tensor]) -> None:
        """Adds the logs of a step: float32 scalars, among them `loss`, with the same names in every step."""
        self._pending.append(logs)

    def fetch(self) -> list[dict[str, float]]:
        """The logs of all steps so far, in one transfer for those that are new.

        Raises:
            InputError: a new loss is not finite.
        """
        if self._pending:
            names = list(self._pending[0])
            values = tf.stack([logs[name] for logs in self._pending for name in names]).numpy()
            for row in values.reshape(-1, len(names)).tolist():
                self._fetched.append(dict(zip(names, row, strict=True)))
                loss = self._fetched[-1]["loss"]
                if not np.isfinite(loss):
                    raise InputError(
                        f"the loss became {loss} at step {len(self._fetched)} of epoch {self.epoch + 1}:"
                        " lower training.learning_rate or set training.clip_norm, and train under another"
                        " name="
                    )
            self._pending = []
        return self._fetched


def _needs_each_step(callback: keras.callbacks.Callback) -> bool:
    """Whether a callback may read the logs of every step."""
    if isinstance(callback, keras.callbacks.ProgbarLogger | keras.callbacks.TensorBoard):
        return False
    base = keras.callbacks.Callback
    return any(
        getattr(getattr(callback, name), "__func__", None) is not getattr(base, name)
        for name in ("on_train_batch_end", "on_batch_end")
    )
