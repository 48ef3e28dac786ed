"""The papers' SMP: loss, annealing and gate updates against NumPy, and the papers' settings."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.errors import InputError
from tfsparsecap.pruning import Schedule, SupermaskLoss, prune, strip_pruning


def test_paper_settings():
    soft_attention = SupermaskLoss(0.95, 530_000, paper="soft_attention")
    assert soft_attention.gate_learning_rate == 100
    assert soft_attention.sparsity_weight == pytest.approx(10)  # max(5, 0.5 / (1 - 0.95))
    assert SupermaskLoss(0.8, 530_000).sparsity_weight == 5
    up_down = SupermaskLoss(0.95, 530_000, paper="up_down")
    assert (up_down.sparsity_weight, up_down.clip_value) == (80, 0.1)
    for off in (None, 0):
        without = SupermaskLoss(0.95, 530_000, paper="up_down", clip_value=off)
        assert without.clip_value is SupermaskLoss.from_config(without.get_config()).clip_value is None
    again = SupermaskLoss.from_config(up_down.get_config())
    assert (again.gate_learning_rate, again.sparsity_weight, again.clip_value) == (100, 80, 0.1)


@pytest.mark.parametrize(
    ("paper", "weights"),
    [
        # RNN-SMP, Tables 3 and 4; SMP, Figure 3.
        ("soft_attention", {0.8: 5, 0.9: 5, 0.95: 10, 0.975: 20}),
        # The rule of the SMP authors' code for pruned encoders: max(5, 1.5 / (1 - sparsity)).
        ("soft_attention_with_encoder", {0.8: 7.5, 0.9: 15, 0.95: 30, 0.975: 60}),
        # SMP, caption of Figure 4; 98.75 % is shown as 98.8 %.
        ("up_down", {0.95: 80, 0.975: 80, 0.9875: 80, 0.988: 80, 0.991: 120}),
        ("object_relation_transformer", {0.95: 120, 0.975: 120, 0.9875: 80, 0.988: 80, 0.991: 120}),
    ],
)
def test_published_weights_of_the_sparsity_loss(paper, weights):
    for sparsity, expected in weights.items():
        method = SupermaskLoss(sparsity, 100, paper=paper)
        assert method.sparsity_weight == pytest.approx(expected)
        assert SupermaskLoss(sparsity, 100, paper=paper, sparsity_weight=7).sparsity_weight == 7


@pytest.mark.parametrize("start", [0.5, 2.0, 5.0])
def test_the_smallest_rate_takes_a_gate_from_its_start_to_zero(start):
    method = SupermaskLoss(0.9, 1000, initial_logit=start, sparsity_weight=20.0, epsilon=0.1)
    rate = method.least_learning_rate(300)
    # Adam with a large epsilon is gradient descent with rate / epsilon, computed here in small steps.
    logit, steps = start, 20_000
    for share in (np.arange(steps) + 0.5) / steps:
        alpha = 1 - (1 + math.cos(math.pi * share)) / 2
        slope = math.exp(-logit) / (1 + math.exp(-logit)) ** 2
        logit -= rate / 0.1 * 20.0 * alpha * slope / 300 * (1000 / steps)
    assert logit == pytest.approx(0.0, abs=0.01)


@pytest.mark.parametrize(
    ("options", "target"),
    [
        ({}, 0.9),
        ({"sparsity_weight": 0.0}, None),
        ({"schedule": Schedule(end=0.5), "exact": False}, None),
        ({"sparsity_weight": 0.0, "schedule": Schedule(end=0.5)}, 0.9),
    ],
)
def test_the_target_is_known_only_if_a_loss_or_an_exact_end_reaches_it(options, target):
    assert SupermaskLoss(0.9, 100, **options).target == target


@pytest.mark.parametrize("clip", [None, 1e-4])
def test_gates_are_updated_by_the_papers_adam(clip):
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(4, use_bias=False)])
    method = SupermaskLoss(
        0.9, 40, gate_learning_rate=3.0, sparsity_weight=50.0, clip_value=clip, schedule=Schedule(end=0.99)
    )
    prune(model, method)
    gate = model.layers[0].kernel_gate
    random = np.random.default_rng(0)
    logits = random.normal(size=(6, 4)).astype("float32")
    gate.logits.assign(logits)
    first, second = np.zeros((6, 4)), np.zeros((6, 4))
    for step in range(5):
        from_loss = random.normal(size=(6, 4)).astype("float32") * 1e-2
        slope = (sigmoid := 1 / (1 + np.exp(-logits))) * (1 - sigmoid)
        missing = 0.9 - (1 - (logits > 0).mean())
        alpha = 1 - (1 + math.cos(math.pi * step / 40)) / 2
        gradient = from_loss + 50 * alpha * np.sign(missing) * slope / 24
        gradient = gradient if clip is None else np.clip(gradient, -clip, clip)
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        rate = 3.0 * math.sqrt(1 - 0.999 ** (step + 1)) / (1 - 0.9 ** (step + 1))
        logits = logits - rate * first / (np.sqrt(second) + 1e-2)
        method.step([tf.constant(from_loss)])
        assert np.allclose(gate.logits.numpy(), logits, rtol=1e-4, atol=1e-5)


def test_the_sparsity_loss_equals_the_papers_formula():
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(4, use_bias=False)])
    method = SupermaskLoss(0.9, 40, sparsity_weight=50.0)
    prune(model, method)
    model.layers[0].kernel_gate.logits.assign(np.where(np.arange(24).reshape(6, 4) < 6, -1.0, 1.0))
    method.steps_done.assign(20)
    assert float(method.sparsity_loss()) == pytest.approx(50 * 0.5 * abs(0.9 - 0.25), rel=1e-5)
    assert float(method.logs()["sparsity"]) == pytest.approx(0.25)
    # Figure 7 of the SMP paper: its gating average is that of the variables, not of their sigmoid.
    assert float(method.logs()["gating_average"]) == pytest.approx((18 - 6) / 24, rel=1e-6)
    assert float(method.logs()["sparsity_loss"]) == pytest.approx(0.9 - 0.25, rel=1e-5)
    assert float(method.logs()["weighted_sparsity_loss"]) == pytest.approx(50 * 0.5 * 0.65, rel=1e-5)


def trained(method, size=128):
    model = keras.Sequential([keras.Input((size,)), keras.layers.Dense(100, "relu"), keras.layers.Dense(10)])
    random = np.random.default_rng(0)
    inputs = random.normal(size=(2048, size)).astype("float32")
    labels = np.argmax(inputs[:, :64] @ random.normal(size=(64, 10)), 1)
    prune(model, method)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(1e-3), loss)
    batches = tf.data.Dataset.from_tensor_slices((inputs, labels)).repeat().batch(64)
    history = model.fit(batches, epochs=10, steps_per_epoch=method.total_steps // 10, verbose=0)
    kernels = [weight.numpy() for weight in strip_pruning(model).weights if len(weight.shape) == 2]
    return 1 - sum(map(np.count_nonzero, kernels)) / sum(kernel.size for kernel in kernels), history.history


@pytest.mark.slow
def test_the_auto_rate_approaches_the_target_and_a_schedule_with_an_end_reaches_it(compiled):
    sparsity, history = trained(SupermaskLoss(0.9, 500))
    assert 0.8 < sparsity < 0.95
    assert history["sparsity_loss"][0] > 0
    sparsity, history = trained(SupermaskLoss(0.9, 500, schedule=Schedule(end=0.75)))
    assert sparsity == pytest.approx(0.9, abs=1e-4)
    assert history["sparsity"][-2:] == [pytest.approx(0.9, abs=1e-4)] * 2  # frozen


@pytest.mark.parametrize(
    "arguments",
    [
        {"paper": "lightcap"},
        {"total_steps": 0},
        {"sparsity_weight": -1.0},
        {"gate_learning_rate": "x"},
        {"gate_learning_rate": 0},
        {"clip_value": -0.1},
        {"clip_value": "x"},
        {"epsilon": 0.0},
        {"initial_logit": float("nan")},
        {"schedule": Schedule(end=0.0)},
    ],
)
def test_arguments_out_of_range_are_rejected(arguments):
    with pytest.raises(InputError, match=r"give a number|give a whole|there is no paper|exact=False"):
        SupermaskLoss(**{"sparsity": 0.9, "total_steps": 100, **arguments})


def stepped(method, steps, seed=0):
    """Logits after steps with gradients that open some gates and close others."""
    model = keras.Sequential([keras.Input((6,)), keras.layers.Dense(4, use_bias=False)])
    prune(model, method)
    gradient = np.random.default_rng(seed).normal(size=(6, 4)).astype("float32")
    for _ in range(steps):
        method.step([tf.constant(gradient)])
    return np.array(method.gates[0].logits), gradient


def test_without_sparsity_loss_gates_follow_the_loss_of_the_model():
    method = SupermaskLoss(0.9, 40, gate_learning_rate=0.5, sparsity_weight=0.0)
    logits, gradient = stepped(method, 20)
    # Gates open if that reduces the loss and close otherwise; nothing drives the sparsity to 90%.
    np.testing.assert_array_equal(logits < 5.0, gradient > 0)
    assert float(method.sparsity_loss()) == 0
    assert SupermaskLoss(0.9, 40, sparsity_weight=None).sparsity_weight == pytest.approx(5)


def test_a_rate_that_cannot_reach_the_target_is_refused():
    model = keras.Sequential([keras.Input((20,)), keras.layers.Dense(10)])
    with pytest.raises(InputError, match="cannot be reached"):
        prune(model, SupermaskLoss(0.9, 500, gate_learning_rate=0.1))


def test_exact_false_freezes_gates_at_their_sparsity():
    options = {"gate_learning_rate": 30.0, "sparsity_weight": 0.0}
    before, _ = stepped(SupermaskLoss(0.9, 40, **options), 10)
    method = SupermaskLoss(0.9, 40, schedule=Schedule(end=0.25), exact=False, **options)
    after, _ = stepped(method, 40)
    assert 0 < (before > 0).sum() < 24
    np.testing.assert_array_equal(after, np.where(before > 0, 100.0, -100.0))
    for training in (True, False):  # sampling does not change them
        np.testing.assert_array_equal(method.gates[0].mask(training), before > 0)
