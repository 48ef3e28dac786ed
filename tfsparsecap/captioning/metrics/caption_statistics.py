"""Statistics of captions that need no images: how new, diverse and long they are."""

from collections.abc import Iterable

from tfsparsecap.captioning.metrics.tokenize import light_tokenize
from tfsparsecap.errors import InputError


def caption_statistics(
    captions: Iterable[str], training_captions: Iterable[str] | None = None
) -> dict[str, float]:
    """Statistics of generated captions, one per image.

    Captions are compared word by word; case and punctuation are ignored (see `light_tokenize`).

    Args:
        captions: at least one.
        training_captions: those that the captioner was trained on; None if unknown.

    Returns:
        - `uniqueness`: share of the captions, 0 to 1, that are not among the training captions;
        - `distinct`: number of different captions divided by the number of captions;
        - `mean_length`: words per caption;
        - `vocabulary_used`: number of different words in all captions;
        - `vocabulary_share`: share of the different words of the training captions that are used, 0 to 1.

        Without training captions `uniqueness` and `vocabulary_share` are absent.

    Raises:
        InputError: there are no captions.

    Examples:
        >>> found = caption_statistics(["a dog", "A dog.", "a cat runs"], ["a cat runs", "a cat sits"])
        >>> [round(found[name], 3) for name in ("uniqueness", "distinct", "mean_length", "vocabulary_share")]
        [0.667, 0.667, 2.333, 0.75]
    """
    texts = [light_tokenize(caption) for caption in captions]
    if not texts:
        raise InputError("there are no captions to compute statistics of: give at least one")
    words = {word for text in texts for word in text.split()}
    statistics = {
        "distinct": len(set(texts)) / len(texts),
        "mean_length": sum(len(text.split()) for text in texts) / len(texts),
        "vocabulary_used": len(words),
    }
    known = {light_tokenize(caption) for caption in training_captions or ()}
    known_words = {word for text in known for word in text.split()}
    if not known_words:
        return statistics
    return {
        "uniqueness": sum(text not in known for text in texts) / len(texts),
        **statistics,
        "vocabulary_share": len(words & known_words) / len(known_words),
    }
