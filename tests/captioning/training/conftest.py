"""Creates two devices before TensorFlow starts, for the tests that train on both."""

import tests.two_devices  # noqa: F401
