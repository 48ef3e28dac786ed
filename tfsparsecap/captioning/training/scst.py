"""Self-critical sequence training (SCST): captions are sampled, and reinforced according to their rewards."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from tfsparsecap.captioning.models.captioner_base import Captioner
from tfsparsecap.captioning.search.beam_search import beam_search
from tfsparsecap.captioning.search.sampling import sample
from tfsparsecap.captioning.settings.sections import SCST
from tfsparsecap.captioning.training.loop import Loop

#: Token ids of captions, int32 [N, T], and the index of each caption's image, int64 [N] -> rewards [N].
Reward = Callable[[np.ndarray, np.ndarray], np.ndarray]


class SCSTLoop(Loop):
    """Steps of self-critical sequence training.

    For each image, captions are sampled token by token from the current captioner, without dropout, with
    rounded gates, and without rules for complete sentences, which would hide mistakes from the reward. Their
    log-probabilities are computed in the same way, or as in training if `settings.dropout` is set. With the
    reward `r` of a caption and the baseline `b` of its image, the loss is

        - sum((r - b) * log p(token | tokens before, image)) / tokens

    over all tokens of all captions on all devices, end tokens included. With the baseline `all` the gradient
    is that of `others`, scaled by `(samples - 1) / samples`.

    Args:
        model, strategy: see `Loop`.
        reward: scores captions; called with one batch at a time.
        settings: number of samples, baseline, temperature and dropout. The gradient is that of temperature 1.
        max_length: maximum number of tokens in a caption.
        seed: of the sampling. A step's samples depend on the seed and the optimizer's step count, so that a
            resumed run samples the same captions.

    Reference:
        Rennie et al., "Self-critical Sequence Training for Image Captioning",
        https://arxiv.org/abs/1612.00563, equations 5 to 9 (`greedy`); Luo, "A Better Variant of
        Self-Critical Sequence Training", https://arxiv.org/abs/2003.09971, equation 4 (`others`).

    Examples:
        >>> loop = SCSTLoop(captioner, reward=reward, max_length=20)  # doctest: +SKIP
        >>> loop.run(lambda epoch: batches.epoch(epoch), epochs=1)  # doctest: +SKIP
    """

    averaged = frozenset({"loss", "reward"})

    def __init__(
        self,
        model: Captioner,
        *,
        reward: Reward,
        max_length: int,
        settings: SCST | None = None,
        seed: int = 0,
        strategy: tf.distribute.Strategy | None = None,
    ):
        super().__init__(model, strategy=strategy)
        self.reward, self.max_length, self.seed = reward, max_length, seed
        self.settings = settings or SCST()

    def _replica_step(self, inputs: dict, targets: tf.Tensor) -> dict[str, tf.Tensor]:
        """Targets are the indices of the images, int32 [B, 1]; -1 marks an image that cannot be read."""
        replica = tf.distribute.get_replica_context()

        def total(values):
            return tf.maximum(replica.all_reduce(tf.distribute.ReduceOp.SUM, tf.reduce_sum(values)), 1.0)

        images = tf.cast(targets[:, 0], tf.int64)
        readable = tf.cast(images >= 0, tf.float32)
        token_ids = self._sample(replica, inputs)
        rewards = self._rewards(token_ids, images)
        advantages = (rewards - self._baseline(inputs, images, rewards)) * readable[:, None]
        weights = self._token_mask(token_ids) * readable[:, None, None]
        tokens = total(weights)
        with tf.GradientTape() as tape:
            log_probabilities = self._log_probabilities(inputs, token_ids)
            loss = -tf.reduce_sum(advantages[:, :, None] * weights * log_probabilities) / tokens
            scaled = self.optimizer.scale_loss(loss)
        self._apply_gradients(tape, scaled)
        mean_rewards = tf.reduce_mean(rewards, axis=1)
        return {"loss": loss, "reward": tf.reduce_sum(mean_rewards * readable) / total(readable)}

    def _sample(self, replica: tf.distribute.ReplicaContext, inputs: dict) -> tf.Tensor:
        """Captions int32 [B, samples, T]."""
        step = tf.cast(tf.convert_to_tensor(self.optimizer.iterations), tf.int32)
        device = tf.cast(replica.replica_id_in_sync_group, tf.int32)
        seed = tf.random.fold_in(tf.random.fold_in(tf.constant([self.seed, 0], tf.int64), step), device)
        token_ids, _ = sample(
            self.model,
            inputs,
            self.settings.samples,
            self.max_length,
            temperature=self.settings.temperature,
            seed=seed,
            rules=None,
        )
        return tf.stop_gradient(token_ids)

    def _baseline(self, inputs: dict, images: tf.Tensor, rewards: tf.Tensor) -> tf.Tensor:
        """float32 [B, samples] or [B, 1]."""
        if self.settings.baseline == "greedy":
            token_ids, _ = beam_search(self.model, inputs, 1, self.max_length, rules=None)
            return self._rewards(token_ids, images)
        total, samples = tf.reduce_sum(rewards, axis=1, keepdims=True), self.settings.samples
        return total / samples if self.settings.baseline == "all" else (total - rewards) / (samples - 1)

    def _rewards(self, token_ids: tf.Tensor, images: tf.Tensor) -> tf.Tensor:
        """Rewards float32 [B, n] of captions int32 [B, n, T]."""
        count = token_ids.shape[1]
        flat = tf.reshape(token_ids, [-1, token_ids.shape[2]])

        def reward(captions: np.ndarray, images: np.ndarray) -> np.ndarray:
            # Images that cannot be read have no references; their rewards are ignored.
            return np.asarray(self.reward(captions, np.maximum(images, 0)), np.float32)

        rewards = tf.numpy_function(reward, [flat, tf.repeat(images, count)], tf.float32)
        return tf.reshape(rewards, [-1, count])

    def _token_mask(self, token_ids: tf.Tensor) -> tf.Tensor:
        """1 up to and including the end token, then 0."""
        # Padding may be sampled like any token, so only the end token marks the end of a caption.
        ends = tf.cast(token_ids == self.model.end_id, tf.int32)
        return tf.cast(tf.cumsum(ends, axis=2, exclusive=True) == 0, tf.float32)

    def _log_probabilities(self, inputs: dict, token_ids: tf.Tensor) -> tf.Tensor:
        """Log-probability of each token, float32 [B, n, T], in a single pass."""
        count, length = token_ids.shape[1], token_ids.shape[2]
        rows = tf.reshape(token_ids, [-1, length])
        first = tf.fill([tf.shape(rows)[0], 1], self.model.start_id)
        before = tf.concat([first, rows[:, :-1]], axis=1)
        logits = self.model({**inputs, "tokens": before}, training=self.settings.dropout)
        log_probabilities = tf.nn.log_softmax(tf.cast(logits, tf.float32))
        return tf.reshape(tf.gather(log_probabilities, rows, batch_dims=2), [-1, count, length])
