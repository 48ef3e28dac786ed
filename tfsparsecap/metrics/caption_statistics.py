"""What captions are like, whatever is on the pictures: how new, how different, how long, how rich."""

from collections.abc import Iterable

from tfsparsecap.errors import InputError
from tfsparsecap.metrics.tokenize import light_tokenize


def caption_statistics(
    captions: Iterable[str], training_captions: Iterable[str] | None = None
) -> dict[str, float]:
    """Figures of the captions that a captioner gave, one an image.

    Captions are compared as words: case and punctuation do not count (see `light_tokenize`).

    Args:
        captions: at least one.
        training_captions: what the captioner has learnt from; None where that is not known.

    Returns:
        - `uniqueness`: share of the captions, 0 to 1, that are not among the training captions;
        - `distinct`: the number of different captions over the number of captions;
        - `mean_length`: words of a caption;
        - `vocabulary_used`: how many different words there are in all captions;
        - `vocabulary_share`: how many of the different words of the training captions are among them, 0 to 1.

        Without training captions `uniqueness` and `vocabulary_share` are absent.

    Raises:
        InputError: there are no captions.

    Example:
        >>> found = caption_statistics(["a dog", "A dog.", "a cat runs"], ["a cat runs", "a cat sits"])
        >>> [round(found[name], 3) for name in ("uniqueness", "distinct", "mean_length", "vocabulary_share")]
        [0.667, 0.667, 2.333, 0.75]
    """
    said = [light_tokenize(caption) for caption in captions]
    if not said:
        raise InputError("there are no captions to count words of: give at least one")
    words = {word for caption in said for word in caption.split()}
    figures = {
        "distinct": len(set(said)) / len(said),
        "mean_length": sum(len(caption.split()) for caption in said) / len(said),
        "vocabulary_used": len(words),
    }
    known = {light_tokenize(caption) for caption in training_captions or ()}
    known_words = {word for caption in known for word in caption.split()}
    if not known_words:
        return figures
    return {
        "uniqueness": sum(caption not in known for caption in said) / len(said),
        **figures,
        "vocabulary_share": len(words & known_words) / len(known_words),
    }
