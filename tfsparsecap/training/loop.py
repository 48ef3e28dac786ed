"""The training loop: written over `tf.distribute`, one device being the simple case.

It drives ordinary `keras.callbacks`, so that whatever Keras offers there (progress bar, early stopping,
logging) works here.
"""

import time
from collections.abc import Callable, Iterable

import keras
import numpy as np
import tensorflow as tf

from tfsparsecap.data.pipeline import unwrap_input_errors
from tfsparsecap.errors import InputError


def make_strategy(name: str) -> tf.distribute.Strategy:
    """The distribution strategy of a name: `default` is one device, `mirrored` all devices of this machine.

    Variables must be made inside its `scope()`.
    """
    return tf.distribute.MirroredStrategy() if name == "mirrored" else tf.distribute.get_strategy()


class Loop:
    """Steps of teacher forcing: masked cross-entropy, averaged over the words of the batch on all devices.

    Args:
        model: a built `Captioner`; a pruned one is used with the optimizer that `model.pruning.wrap` gave.
        optimizer: a Keras optimizer for `model.trainable_variables`, see `make_optimizer`.
        strategy: under whose scope model and optimizer were made.
        label_smoothing: share of the target probability that is spread over all words, in [0, 1).

    Attributes:
        train_step: one compiled step: a batch -> the logs, `loss` among them, as float32 scalars.

    Example:
        >>> loop = Loop(captioner, keras.optimizers.Adam(1e-3))  # doctest: +SKIP
        >>> loop.run(lambda epoch: batches, epochs=3)  # doctest: +SKIP
    """

    #: Logs, besides the loss, whose mean over the steps is an epoch's; of others the last step's counts.
    averaged: frozenset[str] = frozenset()

    def __init__(
        self,
        model: keras.Model,
        optimizer: keras.optimizers.Optimizer,
        *,
        strategy: tf.distribute.Strategy | None = None,
        label_smoothing: float = 0.0,
    ):
        self.model, self.optimizer, self.label_smoothing = model, optimizer, label_smoothing
        self.strategy = strategy or tf.distribute.get_strategy()
        with self.strategy.scope():
            optimizer.build(model.trainable_variables)
        self.train_step = tf.function(self._step)

    def run(
        self,
        batches: Callable[..., tf.data.Dataset],
        *,
        epochs: int,
        first_epoch: int = 0,
        callbacks: Iterable[keras.callbacks.Callback] = (),
        verbose: int = 0,
    ) -> None:
        """Trains from `first_epoch` (counted from 0) up to, not including, `epochs`.

        Args:
            batches: epoch -> data set of `(inputs, targets)`, as `data.pipeline.TrainingBatches.epoch`; equal
                epochs must give equal batches for a resumed run to be the same run. With several devices it
                is called as `batches(epoch, context=context)` and gives this process's part, a device's at a
                time.
            epochs: the number of epochs in the end, earlier runs of a resumed training included.
            first_epoch: where to start.
            callbacks: any Keras callbacks. `on_epoch_end` gets the mean `loss`, what the pruning method logs,
                `seconds`, and `data_wait`: the share of the epoch in which the step waited for its batch.
            verbose: 0 silent, 1 a progress bar, 2 a line an epoch.

        Raises:
            InputError: the loss is no number any more, or there is no batch.
        """
        if first_epoch >= epochs:
            return
        steps = int(batches(first_epoch).cardinality())
        callbacks = keras.callbacks.CallbackList(
            list(callbacks),
            add_progbar=True,
            model=self.model,
            verbose=verbose,
            epochs=epochs,
            steps=steps if steps >= 0 else None,
        )
        self.model.stop_training = False
        callbacks.on_train_begin()
        logs = {}
        for epoch in range(first_epoch, epochs):
            callbacks.on_epoch_begin(epoch)
            logs = self._epoch(self._distributed(batches, epoch), callbacks, epoch)
            callbacks.on_epoch_end(epoch, logs)
            if self.model.stop_training:
                break
        callbacks.on_train_end(logs)

    def _distributed(self, batches: Callable[..., tf.data.Dataset], epoch: int) -> Iterable:
        if self.strategy.num_replicas_in_sync == 1:
            return batches(epoch)
        return self.strategy.distribute_datasets_from_function(
            lambda context: batches(epoch, context=context)
        )

    def _epoch(self, dataset: Iterable, callbacks: keras.callbacks.CallbackList, epoch: int) -> dict:
        losses, means, logs, waited = [], {}, {}, 0.0
        began = time.perf_counter()
        iterator = iter(dataset)
        while True:
            asked = time.perf_counter()
            with unwrap_input_errors():
                batch = next(iterator, None)
            waited += time.perf_counter() - asked
            if batch is None:
                break
            callbacks.on_train_batch_begin(len(losses))
            values = {name: float(value) for name, value in self.train_step(batch).items()}
            losses.append(values.pop("loss"))
            for name in self.averaged & values.keys():
                means[name] = means.get(name, 0.0) + (values[name] - means.get(name, 0.0)) / len(losses)
            logs = values
            if not np.isfinite(losses[-1]):
                raise InputError(
                    f"the loss became {losses[-1]} at step {len(losses)} of epoch {epoch + 1}: lower "
                    "training.learning_rate or set training.clip_norm, and train under another name="
                )
            callbacks.on_train_batch_end(len(losses) - 1, {"loss": losses[-1], **logs})
        if not losses:
            raise InputError(
                "there are fewer training captions than training.batch_size: lower it or give more data"
            )
        seconds = time.perf_counter() - began
        return {
            "loss": float(np.mean(losses)),
            **logs,
            **means,
            "seconds": seconds,
            "data_wait": waited / seconds,
        }

    def _step(self, batch) -> dict[str, tf.Tensor]:
        losses = self.strategy.run(self._replica_step, args=batch)
        logs = {"loss": self.strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)}
        pruning = getattr(self.model, "pruning", None)
        return {**logs, **pruning.logs()} if pruning is not None else logs

    def _replica_step(self, inputs: dict, targets: tf.Tensor) -> tf.Tensor:
        replica = tf.distribute.get_replica_context()
        words = tf.reduce_sum(tf.cast(targets != self.model.pad_id, tf.float32))
        words = tf.maximum(replica.all_reduce(tf.distribute.ReduceOp.SUM, words), 1.0)
        with tf.GradientTape() as tape:
            logits = self.model(inputs, training=True)
            loss = masked_cross_entropy(logits, targets, self.model.pad_id, self.label_smoothing) / words
            # A penalty of a layer is the same on every device; the devices' losses are summed.
            penalty = tf.add_n(self.model.losses) if self.model.losses else 0.0
            loss += penalty / replica.num_replicas_in_sync
            scaled = self.optimizer.scale_loss(loss)
        self._apply(tape, scaled, replica)
        return loss

    def _apply(self, tape: tf.GradientTape, scaled: tf.Tensor, replica: tf.distribute.ReplicaContext) -> None:
        """One step of the optimizer, alike on all devices."""
        variables = self.model.trainable_variables
        gradients = tape.gradient(scaled, [variable.value for variable in variables])
        if replica.num_replicas_in_sync > 1:
            # A Keras optimizer clips before it sums over the devices. Given the mean on each of them, what it
            # clips and sums is the whole gradient (`make_optimizer` divides the limits by the number of
            # devices).
            gradients = [_mean_of_replicas(replica, gradient) for gradient in gradients]
        self.optimizer.apply(gradients, variables)


def masked_cross_entropy(logits, targets, pad_id: int, label_smoothing: float = 0.0) -> tf.Tensor:
    """Cross-entropy in nats, summed over all words that are not padding.

    With smoothing e the target distribution is (1 - e) on the word and e / V on each of the V words.

    Args:
        logits: float [B, T, V].
        targets: int32 [B, T]; positions of `pad_id` count nothing.
        pad_id: the padding.
        label_smoothing: e, in [0, 1).

    Returns:
        float32 scalar.

    Example:
        >>> loss = masked_cross_entropy(tf.zeros([1, 2, 4]), tf.constant([[3, 0]]), pad_id=0)
        >>> round(float(loss), 3)
        1.386
    """
    logits = tf.cast(logits, tf.float32)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits)
    if label_smoothing:
        uniform = tf.reduce_logsumexp(logits, axis=-1) - tf.reduce_mean(logits, axis=-1)
        losses = (1.0 - label_smoothing) * losses + label_smoothing * uniform
    return tf.reduce_sum(tf.where(targets == pad_id, 0.0, losses))


def make_optimizer(
    steps: int,
    *,
    learning_rate: float,
    schedule: str = "constant",
    final_learning_rate: float = 0.0,
    warmup_steps: int = 0,
    beta_2: float = 0.999,
    epsilon: float = 1e-7,
    weight_decay: float = 0.0,
    clip_norm: float | None = None,
    clip_value: float | None = None,
    replicas: int = 1,
) -> keras.optimizers.Optimizer:
    """Adam with a schedule, decoupled weight decay (biases excepted) and clipping.

    Args:
        steps: over which `cosine` goes from `learning_rate` down to `final_learning_rate`.
        warmup_steps: the first of them, in which `cosine` and `noam` rise from 0 to `learning_rate`.
        beta_2, epsilon: of Adam.
        clip_norm: limit of the norm of all gradients together; `clip_value`: of a single one. Not both.
        replicas: devices whose gradients the optimizer sums.

    Raises:
        InputError: both limits are given.
    """
    if clip_norm and clip_value:
        raise InputError("training.clip_norm and training.clip_value are both set: set one of them to null")
    rate = learning_rate
    if schedule == "cosine" and steps > 0:
        warmup_steps = min(warmup_steps, steps - 1)
        rate = keras.optimizers.schedules.CosineDecay(
            0.0 if warmup_steps else learning_rate,
            steps - warmup_steps,
            alpha=min(1.0, final_learning_rate / learning_rate),
            warmup_target=learning_rate if warmup_steps else None,
            warmup_steps=warmup_steps,
        )
    elif schedule == "noam":
        rate = Noam(learning_rate, max(1, warmup_steps))
    optimizer = keras.optimizers.Adam(
        rate,
        beta_2=beta_2,
        epsilon=epsilon,
        weight_decay=weight_decay or None,
        global_clipnorm=clip_norm / replicas if clip_norm else None,
        clipvalue=clip_value / replicas if clip_value else None,
    )
    if weight_decay:
        optimizer.exclude_from_weight_decay(var_names=["bias"])
    return optimizer


class Noam(keras.optimizers.schedules.LearningRateSchedule):
    """Rises in a line, then falls with the square root of the steps: `peak * min(n / w, sqrt(w / n))`.

    The schedule of "Attention Is All You Need" (https://arxiv.org/abs/1706.03762, equation 3), whose `peak`
    is `(size * w) ** -0.5`.

    Args:
        peak: the largest rate, at step `warmup_steps`.
        warmup_steps: `w`.

    Example:
        >>> [round(float(Noam(0.5, 100)(step)), 3) for step in (0, 49, 99, 399)]
        [0.005, 0.25, 0.5, 0.25]
    """

    def __init__(self, peak: float, warmup_steps: int):
        self.peak, self.warmup_steps = peak, warmup_steps

    def __call__(self, step):
        # The first step is counted as step 1: at rate 0 it would teach nothing.
        steps = keras.ops.cast(step, "float32") + 1.0
        return self.peak * keras.ops.minimum(
            steps / self.warmup_steps, keras.ops.sqrt(self.warmup_steps / steps)
        )

    def get_config(self) -> dict:
        return {"peak": self.peak, "warmup_steps": self.warmup_steps}


def _mean_of_replicas(replica: tf.distribute.ReplicaContext, gradient):
    if gradient is None:
        return None
    return replica.all_reduce(tf.distribute.ReduceOp.MEAN, tf.convert_to_tensor(gradient))
