"""What importing the package does, in processes of their own."""

import os
import subprocess
import sys

IMPORT = """
import sys
import keras
before = set(sys.modules)
import tfsparsecap
slow = {"keras_cv", "tensorflow_text", "tensorflow_model_optimization", "matplotlib", "pycocoevalcap"}
assert not slow & (set(sys.modules) - before), slow & set(sys.modules)
known = {name.removeprefix("tfsparsecap>") for name in keras.saving.get_custom_objects()}
wanted = {"SoftAttention", "MobileNetV1Encoder", "GatedDense", "GatedLSTMCell", "Gate", "PrunedModel"}
assert wanted | {"PruningOptimizer", "Supermask", "SupermaskLoss"} <= known, wanted - known
for name in tfsparsecap.__all__:
    assert getattr(tfsparsecap, name)
assert tfsparsecap.layers.GatedDense and tfsparsecap.prune.__name__ == "prune"
print("done")
"""


def python(*arguments, **environment):
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=300,
    )


def test_importing_makes_all_classes_known_to_keras_and_brings_nothing_slow():
    done = python("-c", IMPORT)
    assert done.stdout.strip() == "done", done.stderr[-3000:]


def test_another_backend_is_refused_with_what_to_set():
    done = python("-c", "import tfsparsecap", KERAS_BACKEND="jax")
    assert done.returncode == 1
    assert "KERAS_BACKEND=tensorflow" in done.stderr.strip().splitlines()[-1]


def test_commands_start_without_keras():
    done = python("-X", "importtime", "-m", "tfsparsecap.train", "--help")
    assert done.returncode == 0
    assert "usage: python -m tfsparsecap.train" in done.stdout
    assert "tensorflow" not in done.stderr
    assert "keras" not in done.stderr
