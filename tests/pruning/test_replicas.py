"""Methods that wait for other replicas, or let steps out, do on two devices what they do on one."""

import subprocess
import sys

import pytest

MIRRORED = """
import keras, numpy as np, tensorflow as tf
cpu, = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
import tfsparsecap as sc

random = np.random.default_rng(0)
x, y = random.integers(0, 9, (32, 3)), random.normal(size=(32, 4)).astype("float32")

def trained(strategy, make):
    keras.utils.set_random_seed(1)
    with strategy.scope():
        layers = [keras.layers.Embedding(9, 8), keras.layers.Flatten(), keras.layers.Dense(4)]
        model = keras.Sequential([keras.Input((3,)), *layers])
    sc.prune(model, make())
    rate = keras.optimizers.schedules.ExponentialDecay(0.05, 4, 0.5)
    with strategy.scope():
        model.compile(keras.optimizers.AdamW(rate, weight_decay=0.1, use_ema=True, epsilon=1e-3), "mse")
    model.fit(tf.data.Dataset.from_tensor_slices((x, y)).batch(16).repeat(5), verbose=0)
    return model

def copies(variable):
    return [np.array(value) for value in getattr(variable.value, "values", [variable.value])]

strategies = (
    tf.distribute.get_strategy(),
    tf.distribute.MirroredStrategy(["CPU:0"]),
    tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]),
)
methods = {
    "gradual": lambda: sc.Gradual(0.5, 10),
    "ticket": lambda: sc.LotteryTicket(0.5, 10, scheme="gradual"),
    "rounds": lambda: sc.LotteryTicket(0.75, 10, rounds=2),
    "snip": lambda: sc.SNIP(0.5, batches=3),
}
for name, make in methods.items():
    alone, *others = (trained(strategy, make) for strategy in strategies[:: 1 if name == "ticket" else 2])
    assert abs(float(alone.pruning.current_sparsity()) - alone.pruning.sparsity) < 0.02, name
    for other in others:
        assert int(tf.convert_to_tensor(other.optimizer.iterations)) == 10, name
        states = zip(alone.optimizer.variables, other.optimizer.variables, strict=True)
        for mine, theirs in [*zip(alone.weights, other.weights, strict=True), *states]:
            first, *more = copies(theirs)
            np.testing.assert_allclose(copies(mine)[0], first, rtol=1e-3, atol=1e-4, err_msg=theirs.path)
            for one in more:
                np.testing.assert_array_equal(first, one, err_msg=f"{name} {theirs.path}")
print("alike")
"""


@pytest.mark.slow
def test_two_replicas_prune_rewind_and_look_as_one_device_does():
    done = subprocess.run([sys.executable, "-c", MIRRORED], capture_output=True, text=True, timeout=600)
    assert done.stdout.strip().endswith("alike"), done.stderr[-3000:]
