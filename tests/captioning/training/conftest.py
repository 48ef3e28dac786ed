"""Tests of two devices need them before TensorFlow starts."""

import tests.two_devices  # noqa: F401
