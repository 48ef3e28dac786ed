"""Which captions of other photographs fit a photograph? Ranked in a space that images and captions share.

A linear map of an image's features and labels, and the mean of the embeddings of a caption's content words,
become vectors of unit length. They are trained so that the captions of a photograph are nearer to it than
those of others (contrastive loss; Radford et al., https://arxiv.org/abs/2103.00020, equation of figure 3).
A thousand captioned photographs are enough, because the image features come from a large trained network.
"""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import keras
import numpy as np
import tensorflow as tf

from tfsparsecap.captioning.metrics.tokenize import light_tokenize
from tfsparsecap.captioning.search.search_options import FUNCTION_WORDS

# Content words of a caption that are used.
_WORDS = 14
# Words that occur in fewer captions have no embedding.
_LEAST_COUNT = 8
_BATCH = 512
_ROWS_AT_ONCE = 8192
_FUNCTION_WORDS = frozenset(FUNCTION_WORDS)


@dataclass(frozen=True)
class Photographs:
    """Features of photographs, float32 [N, D], and their labels, float32 [N, K]: 1, or 0 if not in the image;
    rows of photographs whose labels are not known are 0."""

    features: np.ndarray
    labels: np.ndarray


def content_words(caption: str) -> list[str]:
    """The different words of a caption that are not function words.

    Examples:
        >>> content_words("A dog and a dog on the beach")
        ['dog', 'beach']
    """
    return [word for word in dict.fromkeys(light_tokenize(caption).split()) if word not in _FUNCTION_WORDS]


class CaptionRanker:
    """Scores how well captions fit photographs.

    Args:
        photographs: photographs with captions, which it learns from.
        captions: the captions of each, at least one.
        texts: all captions that will be ranked.
        rankers: number of models, whose similarities are averaged.
        epochs: epochs in each of which every photograph occurs three times.
        size: length of the vectors.
        seed: of the first model.

    Examples:
        >>> random = np.random.default_rng(0)
        >>> photographs = Photographs(random.normal(size=(4, 8)), np.zeros((4, 0)))
        >>> captions = [["a dog runs"], ["a red bus"], ["a cat sleeps"], ["two boats"]]
        >>> ranker = CaptionRanker(photographs, captions, ["a dog runs"] * 8, rankers=1, epochs=1)
        >>> ranker.similarities(photographs).shape
        (4, 8)
    """

    def __init__(
        self,
        photographs: Photographs,
        captions: Sequence[Sequence[str]],
        texts: Sequence[str],
        *,
        rankers: int = 5,
        epochs: int = 30,
        size: int = 256,
        seed: int = 0,
    ) -> None:
        words = [content_words(text) for text in texts]
        caption_words = [[content_words(text) for text in group] for group in captions]
        sentences = [*words, *itertools.chain(*caption_words)]
        counts = Counter(itertools.chain(*sentences))
        frequent = [word for word, count in counts.items() if count >= _LEAST_COUNT]
        self._ids = {word: number for number, word in enumerate(frequent)}
        rarity = np.log(len(sentences) / np.array([counts[word] for word in frequent] or [1]))
        self._mean = photographs.features.mean(0)
        self._deviation = photographs.features.std(0) + 1e-3
        examples = [self._rows(group) for group in caption_words]
        self._texts, self._photographs = [], []
        for number in range(rankers):
            keras.utils.set_random_seed(seed + number)
            image, text = self._train(photographs, examples, rarity, epochs, size, seed + number)
            rows = self._rows(words)
            parts = [rows[start : start + _ROWS_AT_ONCE] for start in range(0, len(rows), _ROWS_AT_ONCE)]
            self._texts.append(np.concatenate([text(part).numpy() for part in parts]))
            self._photographs.append(image)

    def similarities(self, photographs: Photographs) -> np.ndarray:
        """Cosines of photographs [N] and the texts [M], averaged over the models: float32 [N, M]."""
        features = self._scaled(photographs.features)
        total = 0.0
        for image, texts in zip(self._photographs, self._texts, strict=True):
            total = total + image([features, photographs.labels]).numpy() @ texts.T
        return total / len(self._texts)

    def _scaled(self, features: np.ndarray) -> np.ndarray:
        return ((features - self._mean) / self._deviation).astype(np.float32)

    def _rows(self, sentences: Sequence[Sequence[str]]) -> np.ndarray:
        """Ids of the words of sentences from 1, int32 [N, words], filled up with 0."""
        rows = np.zeros((len(sentences), _WORDS), np.int32)
        for row, words in zip(rows, sentences, strict=True):
            ids = [self._ids[word] + 1 for word in words if word in self._ids][:_WORDS]
            row[: len(ids)] = ids
        return rows

    def _train(
        self,
        photographs: Photographs,
        examples: Sequence[np.ndarray],
        rarity: np.ndarray,
        epochs: int,
        size: int,
        seed: int,
    ) -> tuple[keras.Model, keras.Model]:
        """Models from features and labels, and from rows of words, to vectors of unit length."""
        features = self._scaled(photographs.features)
        image, text = (
            _image_model(features.shape[1], photographs.labels.shape[1], size),
            _text_model(rarity, size),
        )
        sharpness = keras.Variable(2.5)
        optimizer = keras.optimizers.AdamW(1e-3, weight_decay=1e-3)
        variables = [*image.trainable_variables, *text.trainable_variables, sharpness]
        optimizer.build(variables)

        @tf.function
        def step(batch: Mapping[str, tf.Tensor]) -> None:
            with tf.GradientTape() as tape:
                images = image([batch["features"], batch["labels"]], training=True)
                cosines = tf.exp(sharpness) * images @ tf.transpose(text(batch["words"], training=True))
                own = tf.range(tf.shape(cosines)[0])
                loss = tf.add_n(
                    [
                        tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(own, scores))
                        for scores in (cosines, tf.transpose(cosines))
                    ]
                )
            optimizer.apply(tape.gradient(loss, [variable.value for variable in variables]), variables)

        random, count = np.random.default_rng(seed), len(features)
        for _ in range(3 * epochs):
            order = random.permutation(count)
            for start in range(0, max(1, count - _BATCH + 1), _BATCH):
                chosen = order[start : start + _BATCH]
                # Without its labels, a photograph must be told from others by what it shows.
                labelled = random.random((len(chosen), 1)) < 0.7
                words = [examples[index][random.integers(len(examples[index]))] for index in chosen]
                step(
                    {
                        "features": tf.constant(features[chosen]),
                        "labels": tf.constant(photographs.labels[chosen] * labelled, tf.float32),
                        "words": tf.constant(np.stack(words)),
                    }
                )
        return image, text


def _image_model(features: int, labels: int, size: int) -> keras.Model:
    inputs = [keras.Input((features,)), keras.Input((labels,))]
    seen = keras.layers.Dense(size, use_bias=False)(keras.layers.Dropout(0.5)(inputs[0]))
    if labels:
        seen = seen + keras.layers.Dense(size, use_bias=False)(inputs[1])
    return keras.Model(inputs, keras.layers.UnitNormalization()(seen))


def _text_model(rarity: np.ndarray, size: int) -> keras.Model:
    words = keras.Input((_WORDS,), dtype="int32")
    table = keras.layers.Embedding(len(rarity) + 1, size)
    embedded = table(words)
    # A rare word says more.
    start = (
        0.1 * np.random.default_rng(0).normal(size=(len(rarity), size)) * (rarity / rarity.mean())[:, None]
    )
    table.set_weights([np.concatenate([np.zeros((1, size)), start])])
    present = keras.ops.cast(keras.ops.expand_dims(words > 0, 2), "float32")
    present = present * keras.layers.Dropout(0.1, noise_shape=(None, _WORDS, 1))(keras.ops.ones_like(present))
    total = keras.ops.sum(embedded * present, axis=1) + 1e-6
    return keras.Model(words, keras.layers.UnitNormalization()(total))
