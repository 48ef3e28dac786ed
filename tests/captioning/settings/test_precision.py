"""Products in bfloat16 on processors, beside NumPy with inputs rounded to bfloat16."""

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.captioning.settings.precision import keras_policy, products


@pytest.fixture(autouse=True)
def graphs_are_changed():
    """The other tests switch these changes of graphs off, because they take time."""
    before = tf.config.optimizer.get_experimental_options()
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": False})
    yield
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": before["disable_meta_optimizer"]})


CPUINFO = "processor : 0\nflags : fpu sse avx512f avx512_bf16\n"


def product(a, b):
    return tf.function(lambda a, b: tf.tanh(tf.matmul(a, b)))(tf.constant(a), tf.constant(b)).numpy()


@pytest.mark.parametrize(
    ("precision", "content"),
    [("mixed_bfloat16", "flags : fpu sse avx512f"), ("mixed_bfloat16", None), ("float32", CPUINFO)],
)
def test_products_stay_float32_without_instructions_or_without_the_setting(precision, content, tmp_path):
    cpuinfo = tmp_path / "cpuinfo"
    if content is not None:
        cpuinfo.write_text(content)
    a, b = np.random.default_rng(1).standard_normal((2, 64, 64), np.float32) / 8
    with products(precision, cpuinfo) as changed:
        result = product(a, b)
    assert not changed
    np.testing.assert_allclose(result, np.tanh(a @ b), atol=1e-6)


def test_products_are_of_rounded_inputs_with_float32_sums():
    a, b = np.random.default_rng(1).standard_normal((2, 64, 64), np.float32) / 8
    rounded_a, rounded_b = (value.astype(ml_dtypes.bfloat16).astype(np.float32) for value in (a, b))
    exact, rounded = (
        np.tanh(a @ b),
        np.tanh((rounded_a @ rounded_b).astype(ml_dtypes.bfloat16).astype(np.float32)),
    )
    assert np.abs(exact - rounded).max() > 1e-3
    with products("mixed_bfloat16") as changed:
        result = product(a, b)
    np.testing.assert_allclose(result, rounded if changed else exact, atol=1e-4)
    np.testing.assert_allclose(product(a, b), exact, atol=1e-6)


def test_keras_computes_in_float32_on_processors():
    assert keras_policy("mixed_bfloat16") == "float32"
    assert keras_policy("mixed_float16") == "mixed_float16"
