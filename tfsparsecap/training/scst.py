"""Self-critical sequence training: drawn captions become likelier or less likely by how good they are."""

from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from tfsparsecap.decoding import beam_search
from tfsparsecap.errors import InputError
from tfsparsecap.models.captioner import Captioner
from tfsparsecap.sampling import sample
from tfsparsecap.training.loop import Loop

#: Captions' token ids, int32 [N, T], and which image each is of, int64 [N] -> how good each is, float32 [N].
Reward = Callable[[np.ndarray, np.ndarray], np.ndarray]

BASELINES = ("others", "all", "greedy")


class SCSTLoop(Loop):
    """Steps of self-critical sequence training.

    Of each image `samples` captions are drawn, word by word, from the captioner as it is, without dropout and
    with gates rounded. With `r` the reward of a caption and `b` its image's baseline the loss is

        - sum((r - b) * log p(word | words before, image)) / words

    over all words of all captions on all devices, end tokens included.

    Args:
        model, optimizer, strategy: as of `Loop`.
        reward: scores captions; called with one batch at a time.
        samples: captions drawn of an image.
        baseline: `"others"`, the mean reward of the image's other captions; `"all"`, of all of them (the same
            gradient, `(samples - 1) / samples` as large); or `"greedy"`, the reward of the caption that a
            greedy search finds.
        max_length: tokens of a caption at most.
        temperature: of the draw; the gradient is that of the captioner at 1.
        seed: of the draws. A step draws by how many steps the optimizer has taken, so that a training that
            goes on draws as if it had never stopped.

    Raises:
        InputError: an argument out of range.

    Reference:
        Rennie et al., "Self-critical Sequence Training for Image Captioning",
        https://arxiv.org/abs/1612.00563, equations 5 to 9 (`"greedy"`); Luo, "A Better Variant of
        Self-Critical Sequence Training", https://arxiv.org/abs/2003.09971, equation 4 (`"others"`).

    Example:
        >>> loop = SCSTLoop(captioner, optimizer, reward=reward, max_length=20)  # doctest: +SKIP
        >>> loop.run(lambda epoch: batches.epoch(epoch), epochs=1)  # doctest: +SKIP
    """

    averaged = frozenset({"reward"})

    def __init__(
        self,
        model: Captioner,
        optimizer: keras.optimizers.Optimizer,
        *,
        reward: Reward,
        max_length: int,
        samples: int = 5,
        baseline: str = "others",
        temperature: float = 1.0,
        seed: int = 0,
        strategy: tf.distribute.Strategy | None = None,
    ):
        if baseline not in BASELINES:
            raise InputError(f"baseline is {baseline!r}: choose one of {', '.join(BASELINES)}")
        if samples < (1 if baseline == "greedy" else 2):
            raise InputError(
                f"samples is {samples}: the mean of an image's captions is no baseline for one alone; draw 2"
                ' or more, or set baseline="greedy"'
            )
        super().__init__(model, optimizer, strategy=strategy)
        self.reward, self.max_length, self.samples = reward, max_length, samples
        self.baseline, self.temperature, self.seed = baseline, temperature, seed

    def _step(self, batch) -> dict[str, tf.Tensor]:
        losses, rewards, images = self.strategy.run(self._replica_step, args=batch)

        def total(values):
            return self.strategy.reduce(tf.distribute.ReduceOp.SUM, values, axis=None)

        logs = {"loss": total(losses), "reward": total(rewards) / tf.maximum(total(images), 1.0)}
        pruning = getattr(self.model, "pruning", None)
        return {**logs, **pruning.logs()} if pruning is not None else logs

    def _replica_step(self, inputs: dict, targets: tf.Tensor):
        """Targets hold the images' numbers, int32 [B, 1]; a picture that could not be read is -1."""
        replica = tf.distribute.get_replica_context()
        images = tf.cast(targets[:, 0], tf.int64)
        known = tf.cast(images >= 0, tf.float32)
        token_ids, rewards = self._drawn_captions(replica, inputs, images)
        advantages = (rewards - self._baseline(inputs, images, rewards)) * known[:, None]
        weights = self._words(token_ids) * known[:, None, None]
        words = replica.all_reduce(tf.distribute.ReduceOp.SUM, tf.reduce_sum(weights))
        with tf.GradientTape() as tape:
            chances = self._log_probabilities(inputs, token_ids)
            loss = -tf.reduce_sum(advantages[:, :, None] * weights * chances) / tf.maximum(words, 1.0)
            scaled = self.optimizer.scale_loss(loss)
        self._apply(tape, scaled, replica)
        return loss, tf.reduce_sum(rewards * known[:, None]) / self.samples, tf.reduce_sum(known)

    def _drawn_captions(self, replica, inputs: dict, images: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """int32 [B, samples, T] and their rewards, float32 [B, samples]."""
        step = tf.cast(tf.convert_to_tensor(self.optimizer.iterations), tf.int32)
        device = tf.cast(replica.replica_id_in_sync_group, tf.int32)
        seed = tf.random.fold_in(tf.random.fold_in(tf.constant([self.seed, 0], tf.int64), step), device)
        token_ids, _ = sample(
            self.model, inputs, self.samples, self.max_length, temperature=self.temperature, seed=seed
        )
        token_ids = tf.stop_gradient(token_ids)
        return token_ids, self._rewards(token_ids, images)

    def _baseline(self, inputs: dict, images: tf.Tensor, rewards: tf.Tensor) -> tf.Tensor:
        """float32 [B, samples] or [B, 1]."""
        if self.baseline == "greedy":
            return self._rewards(beam_search(self.model, inputs, 1, self.max_length)[0], images)
        total = tf.reduce_sum(rewards, axis=1, keepdims=True)
        if self.baseline == "all":
            return total / self.samples
        return (total - rewards) / (self.samples - 1)

    def _rewards(self, token_ids: tf.Tensor, images: tf.Tensor) -> tf.Tensor:
        """Rewards of captions, float32 [B, n], of token ids int32 [B, n, T]."""
        count = token_ids.shape[1]
        flat = tf.reshape(token_ids, [-1, token_ids.shape[2]])

        def scored(captions: np.ndarray, of_image: np.ndarray) -> np.ndarray:
            # Images that could not be read have no references: they count nothing, whatever is said here.
            return np.asarray(self.reward(captions, np.maximum(of_image, 0)), np.float32)

        rewards = tf.numpy_function(scored, [flat, tf.repeat(images, count)], tf.float32)
        return tf.reshape(rewards, [-1, count])

    def _words(self, token_ids: tf.Tensor) -> tf.Tensor:
        """1 where there is a word or the end token, 0 behind it."""
        # Padding may be drawn like any word: what it is behind tells.
        ends = tf.cast(token_ids == self.model.end_id, tf.int32)
        return tf.cast(tf.cumsum(ends, axis=2, exclusive=True) == 0, tf.float32)

    def _log_probabilities(self, inputs: dict, token_ids: tf.Tensor) -> tf.Tensor:
        """Of each word after those before it, float32 [B, n, T]: one pass over all words at once."""
        count, length = token_ids.shape[1], token_ids.shape[2]
        rows = tf.reshape(token_ids, [-1, length])
        first = tf.fill([tf.shape(rows)[0], 1], self.model.start_id)
        before = tf.concat([first, rows[:, :-1]], axis=1)
        given = {name: tf.repeat(value, count, axis=0) for name, value in inputs.items() if name != "tokens"}
        logits = self.model({**given, "tokens": before}, training=False)
        chances = tf.nn.log_softmax(tf.cast(logits, tf.float32))
        return tf.reshape(tf.gather(chances, rows, batch_dims=2), [-1, count, length])
