"""Likely objects: their threshold and their order."""

import numpy as np
import pytest

from tfsparsecap.captioning.inference.likely_objects import LIKELY, likely_objects


def test_likely_objects_come_in_the_order_of_their_probabilities():
    probabilities = np.array([0.25, LIKELY, 0.875, 0.0, LIKELY], "float32")
    expected = (("sofa", 0.875), ("dog", 0.5), ("tv", 0.5))
    assert likely_objects(["cat", "dog", "sofa", "bus", "tv"], probabilities) == expected
    assert all(type(share) is float for _, share in expected)
    assert likely_objects([], np.zeros(0, "float32")) == ()
    with pytest.raises(ValueError, match="zip"):
        likely_objects(["cat"], [0.5, 0.5])
