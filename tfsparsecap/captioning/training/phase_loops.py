"""The training loop of each phase of a run."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfsparsecap.captioning.models.captioner_base import Captioner
from tfsparsecap.captioning.rewards.caption_reward import CaptionReward
from tfsparsecap.captioning.runs.run_data import RunData
from tfsparsecap.captioning.settings.schema import Config
from tfsparsecap.captioning.training.hidden_states import HiddenStateLoop, regularise_encoder
from tfsparsecap.captioning.training.loop import Loop
from tfsparsecap.captioning.training.scst import SCSTLoop


def make_loop(
    captioner: Captioner,
    kind: str,
    config: Config,
    data: RunData,
    teachers: Sequence[Captioner],
    strategy: tf.distribute.Strategy,
) -> Loop:
    """The loop of a phase, which minimises what the settings say.

    Args:
        captioner: compiled with an optimizer.
        kind: `Phase.kind`.
        config: settings of the run.
        data: its data; SCST takes references and tokenizer from it.
        teachers: the captioners of `training.teacher`.
        strategy: distribution strategy.
    """
    settings = config.training
    regularise_encoder(captioner, settings.encoder_l2)
    if kind != "scst" or settings.scst is None:
        captioner.label_smoothing = settings.label_smoothing
        captioner.teacher_weight = settings.teacher_weight
        captioner.object_weight = settings.object_weight
        options: Any = {"strategy": strategy, "jit_compile": settings.jit_compile}
        if settings.teacher_loss == "words":
            return Loop(captioner, teachers=teachers, **options)
        captions = settings.teacher_loss == "proposed"
        weight = settings.hidden_weight
        return HiddenStateLoop(captioner, teachers[0], captions=captions, weight=weight, **options)
    weights = settings.scst.model_dump(include={"cider_d", "bleu_4", "count_end"})
    return SCSTLoop(
        captioner,
        reward=CaptionReward(data.data.split("train"), data.tokenizer, **weights),
        max_length=config.data.max_length,
        settings=settings.scst,
        seed=config.seed,
        strategy=strategy,
    )
