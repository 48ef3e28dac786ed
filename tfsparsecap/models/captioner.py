"""The one contract in the middle: what decoding, evaluation, training and export ask of a captioner."""

import keras
import numpy as np

#: Ids of the special tokens in every word vocabulary of this package.
PAD, START, END, UNKNOWN = 0, 1, 2, 3

Inputs = dict[str, keras.KerasTensor]
Memory = dict[str, keras.KerasTensor]
State = dict[str, keras.KerasTensor]


class Captioner(keras.Model):
    """A model that says what is on a picture, one word at a time.

    A subclass implements the four methods below and nothing that decodes, trains or exports looks further.
    `B` is the number of captions, `T` their length in tokens, `V` the size of the vocabulary.

    Args:
        vocabulary_size: `V`, special tokens included.
        start_id, end_id, pad_id: ids of the special tokens.
    """

    #: Names of the inputs that `encode` looks at; the first two are the two kinds there are.
    input_names: tuple[str, ...] = ("image", "features")
    #: Tokens of a caption that its state has room for; None has no limit.
    max_length: int | None = None

    def __init__(
        self,
        vocabulary_size: int,
        *,
        start_id: int = START,
        end_id: int = END,
        pad_id: int = PAD,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.vocabulary_size = vocabulary_size
        self.start_id, self.end_id, self.pad_id = start_id, end_id, pad_id

    def encode(self, inputs: Inputs, training: bool = False) -> Memory:
        """Everything that is computed once an image.

        Args:
            inputs: `"image"` uint8 or float [B, S, S, 3] with values 0 to 255, or `"features"` float
                [B, N, D] (what the encoder would have given for the image, and what counts where both are
                given), and what else is in `input_names`; other keys are ignored.
            training: whether layers such as dropout are in training mode.

        Returns:
            A dictionary of tensors, each with leading axis B.
        """
        raise NotImplementedError

    def initial_state(self, memory: Memory) -> State:
        """The decoder's state before the first word: a dictionary of tensors, each with leading axis B."""
        raise NotImplementedError

    def step(self, token_ids, state: State, memory: Memory, training: bool = False):
        """One word further.

        Args:
            token_ids: int32 [B], the word before (`start_id` at first).
            state: what `initial_state` or the step before returned; leading axis B.
            memory: what `encode` returned; leading axis B.

        Returns:
            `(logits, state)`: float32 [B, V] and the next state, of the same structure, shapes and dtypes.
        """
        raise NotImplementedError

    def call(self, inputs: Inputs, training: bool = False):
        """Teacher forcing: logits float32 [B, T, V] for the words after `inputs["tokens"]` int32 [B, T].

        `tokens` begin with `start_id`; logits at position t predict token t + 1. Positions of `pad_id` may
        hold anything: the loss leaves them out.
        """
        raise NotImplementedError

    def get_config(self) -> dict:
        return {
            **super().get_config(),
            "vocabulary_size": self.vocabulary_size,
            "start_id": self.start_id,
            "end_id": self.end_id,
            "pad_id": self.pad_id,
        }

    def constant_tables(self) -> dict[str, np.ndarray]:
        """Tables in the graph that nobody learnt: an exporter does not count them among the weights."""
        return {}

    @classmethod
    def from_config(cls, config: dict, custom_objects=None) -> "Captioner":
        """A captioner of the same sizes, with an encoder of its own where there is one."""
        if config.get("encoder") is not None:
            encoder = keras.saving.deserialize_keras_object(config["encoder"], custom_objects=custom_objects)
            config = {**config, "encoder": encoder}
        return cls(**config)
