"""RTIC's loss in which a decoder learns the hidden states of a deeper one."""

from typing import Literal

import keras
import tensorflow as tf

from tfsparsecap.captioning.models.captioner_base import Captioner, sum_of_all_replicas
from tfsparsecap.captioning.models.transformer_captioner import TransformerCaptioner, selected_layers
from tfsparsecap.captioning.training.loop import Loop
from tfsparsecap.gates import sample_gates_once


class HiddenStateLoop(Loop):
    """Training steps in which decoder layers learn the output of a teacher's, chosen by `selected_layers`.

    The loss is `weight * hidden_state_loss`, plus the captioner's `other_losses`, plus, with `captions`, its
    `word_loss`.

    Args:
        model: a transformer captioner, see `Loop`.
        teacher: one with the same size and at least as many decoder layers. Its inputs are named
            `teacher0_NAME`.
        captions: True for the proposed method of RTIC (equations 7 to 9): the last layer learns the reference
            captions. False for hidden states only (equation 6): all layers learn them, and the output layer
            stays as it is, if the optimizer does not decay `unlearned_weights`.
        weight: lambda_2 of equation 9.
        strategy, jit_compile: see `Loop`.

    Reference:
        Sen Gupta et al., "Optimization of Image Captioning Networks Using Targeted Component Pruning Method".
    """

    model: TransformerCaptioner

    def __init__(
        self,
        model: Captioner,
        teacher: Captioner,
        *,
        captions: bool,
        weight: float = 0.01,
        strategy: tf.distribute.Strategy | None = None,
        jit_compile: bool | Literal["auto"] = False,
    ):
        assert isinstance(model, TransformerCaptioner) and isinstance(teacher, TransformerCaptioner)
        super().__init__(model, teachers=[teacher], strategy=strategy, jit_compile=jit_compile)
        self.captions, self.weight = captions, weight
        self._selected = selected_layers(teacher.depth, model.depth)

    def _teach(self, inputs: dict) -> dict:
        (teacher,) = self.teachers
        assert isinstance(teacher, TransformerCaptioner)
        states = teacher.decoder_states(self._teacher_inputs(inputs, 0))
        return {"teacher_states": [tf.stop_gradient(states[index]) for index in self._selected]}

    def _loss(self, inputs: dict, targets: tf.Tensor) -> tf.Tensor:
        model, learnt = self.model, inputs.pop("teacher_states")
        with sample_gates_once(model, True):
            states = model.decoder_states(inputs, training=True)
            logits = model.logits_of(states[-1])
        pairs = list(zip(states, learnt, strict=True))[: -1 if self.captions else None]
        loss = self.weight * hidden_state_loss(pairs, targets, model.pad_id)
        # Times 0, so that all weights have a gradient.
        words = float(self.captions) * model.word_loss(inputs, targets, logits)
        return loss + words + model.other_losses()


def unlearned_weights(captioner: Captioner) -> list[keras.Variable]:
    """The weights behind the last hidden states, which do not change if hidden states alone are learnt."""
    assert isinstance(captioner, TransformerCaptioner)
    return [*captioner.decoder_norm.weights, *captioner.output_layer.weights]


def hidden_state_loss(pairs: list[tuple[tf.Tensor, tf.Tensor]], targets: tf.Tensor, pad_id: int) -> tf.Tensor:
    """The mean squared difference of hidden states, summed over layers; RTIC's equations 6 and 7.

    Args:
        pairs: a layer's states and those to learn, [B, T, size] each.
        targets: int32 [B, T]; the mean is over the positions that are not padding, in all replicas.
        pad_id: id of the padding.

    Examples:
        >>> states = tf.constant([[[1.0, 3.0], [9.0, 9.0]]])
        >>> float(hidden_state_loss([(states, 0.0 * states)], tf.constant([[4, 0]]), pad_id=0))
        5.0
    """
    words, total = sum_of_all_replicas(tf.math.count_nonzero(targets != pad_id)), tf.zeros(())
    mask = tf.cast(targets != pad_id, tf.float32)
    for own, other in pairs:
        squares = tf.reduce_mean(tf.square(tf.cast(own, tf.float32) - tf.cast(other, tf.float32)), axis=-1)
        total += tf.reduce_sum(mask * squares) / words
    return total
