"""Conversion of captioners, with their search, to dense float32 .tflite files."""

from collections.abc import Callable

import tensorflow as tf

from tfsparsecap.captioning.inference.bundle import CAPTION_SIGNATURE
from tfsparsecap.captioning.models.captioner_base import Captioner
from tfsparsecap.captioning.search import beam_search
from tfsparsecap.captioning.search.sentence_rules import SearchRules
from tfsparsecap_export.keras_to_tflite import graph, rnn_fusion

#: Its additional output for captioners that predict several digits per word.
DIGITS = "digit_ids"
#: Its additional output for captioners that predict the objects in an image.
OBJECTS = "objects"
ENCODER_SIGNATURE = "encode"


def caption_graph(
    captioner: Captioner,
    inputs: dict[str, tf.TensorSpec],
    beam: int,
    max_length: int,
    to_words: Callable[[tf.Tensor], tf.Tensor] | None = None,
    rules: SearchRules | None = None,
) -> bytes:
    """Converts preprocessing, encoder and beam search into one graph.

    Args:
        captioner: built captioner without gates.
        inputs: `{"image": uint8 [1, S, S, 3]}` or `{"features": float32 [1, N, D]}`.
        beam: number of captions that beam search keeps and returns.
        max_length: maximum number of tokens per caption, including the end token.
        to_words: `RadixTokenizer.to_words` for a captioner that predicts several digits per word.
        rules: for complete sentences; None is the plain search.

    Returns:
        A dense float32 .tflite file with the signature `caption` and the outputs `token_ids` int32 [beam,
        max_length] and `scores` float32 [beam], best first. With `to_words`, `token_ids` are word ids, and
        `digit_ids` int32 [beam, max_length] are the ids that the captioner predicts. If the captioner has
        `objects`, `objects` float32 [K] are their probabilities.

    Raises:
        InputError: TFLite does not support an operation of the model, or a weight is NaN or infinite.
    """
    graph.check_weights(captioner)

    def caption(**inputs):
        memory = captioner.encode(inputs, training=False)
        token_ids, scores = beam_search.search_memory(captioner, memory, beam, max_length, rules)
        outputs = {"token_ids": token_ids[0], "scores": scores[0]}
        if to_words is not None:
            outputs |= {"token_ids": to_words(token_ids[0]), DIGITS: token_ids[0]}
        if captioner.objects:
            outputs[OBJECTS] = memory["objects"][0]
        return outputs

    with rnn_fusion.fuse_rnn_kernels(captioner):
        return graph.convert(captioner, caption, inputs, CAPTION_SIGNATURE)


def encoder_graph(captioner: Captioner, image: tf.TensorSpec) -> bytes:
    """Converts the encoder alone, from pixels to features.

    Args:
        captioner: built captioner with an encoder.
        image: uint8 [1, S, S, 3].

    Returns:
        A dense float32 .tflite file with the signature `encode` and the output `features` float32 [1, N, D].

    Raises:
        InputError: as `caption_graph`.
    """

    def encode(image):
        return {"features": captioner.encoder(image, training=False)}

    return graph.convert(captioner, encode, {"image": image}, ENCODER_SIGNATURE)
