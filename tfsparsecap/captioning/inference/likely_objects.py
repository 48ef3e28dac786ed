"""Objects in an image, from the probabilities that a captioner gives them."""

from collections.abc import Sequence

import numpy as np

#: Objects with at least this probability count as being in the image. Probabilities are trained with plain
#: cross-entropy, so from here on an object is more likely there than not.
LIKELY = 0.5


def likely_objects(
    names: Sequence[str], probabilities: np.ndarray | Sequence[float]
) -> tuple[tuple[str, float], ...]:
    """The objects that are probably in an image, with their probabilities, likeliest first.

    Args:
        names: of K objects.
        probabilities: K values from 0 to 1.

    Examples:
        >>> likely_objects(["cat", "dog", "sofa"], [0.75, 0.1, 0.9])
        (('sofa', 0.9), ('cat', 0.75))
    """
    pairs = zip(names, map(float, probabilities), strict=True)
    return tuple(sorted((pair for pair in pairs if pair[1] >= LIKELY), key=lambda pair: -pair[1]))
