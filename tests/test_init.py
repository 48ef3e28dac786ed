"""The public names of `tfsparsecap`, and what importing the package does."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tfsparsecap

# Runs with the dependencies of `sc.prune` only: all those of extras are missing.
IMPORT = """
import sys
import keras
extras = "tensorflow_text keras_cv ai_edge_litert pycocoevalcap PIL pydantic yaml tqdm"
extras += " matplotlib jinja2 tensorflow_model_optimization"
for name in list(sys.modules):
    if name.split(".")[0] in extras.split():
        del sys.modules[name]
sys.modules.update(dict.fromkeys(extras.split()))
import tfsparsecap
known = {name.removeprefix("tfsparsecap>") for name in keras.saving.get_custom_objects()}
expected = {"SoftAttention", "MobileNetV1Encoder", "GatedDense", "GatedLSTMCell", "Gate", "PrunedModel"}
expected |= {"PruningOptimizer", "Supermask", "SupermaskLoss"}
assert expected <= known, expected - known
for name in set(tfsparsecap.__all__) - {"load", "check_exportable", "export_model", "__version__"}:
    assert getattr(tfsparsecap, name)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
tfsparsecap.summary(tfsparsecap.prune(model, tfsparsecap.Supermask(sparsity=0.5, total_steps=9)))
for name in ("load", "check_exportable", "export_model"):
    try:
        getattr(tfsparsecap, name)
    except ImportError as error:
        assert str(error).endswith("[export]'") and "pip install " in str(error), error
    else:
        raise AssertionError(name)
print("done")
"""

# Runs with the dependencies of the extra `export` only.
EXPORT = """
import sys
extras = "tensorflow_text keras_cv pycocoevalcap pydantic yaml safetensors huggingface_hub matplotlib"
sys.modules.update(dict.fromkeys(f"{extras} jinja2 tensorflow_model_optimization".split()))
import keras, numpy as np, tfsparsecap as sc
file, run = sys.argv[1:]
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
sc.check_exportable(model)
sc.export_model(model, file, samples=[np.ones((2, 4), "float32")])
print(sc.load("small").generate(np.full((9, 9, 3), 99, "uint8"))[0])
try:
    sc.load(run)
except ImportError as error:
    print(error)
"""


def python(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=300,
        check=False,
    )


@pytest.mark.slow
def test_import_needs_no_extras_and_registers_all_classes_with_keras():
    done = python(IMPORT)
    assert done.stdout.strip().endswith("done"), done.stderr[-3000:]


@pytest.mark.slow
def test_the_extra_export_exports_models_and_captions_images(tmp_path):
    file = tmp_path / "model.tflite"
    done = python(EXPORT, str(file), str(tmp_path))
    assert file.exists(), done.stderr[-3000:]
    *_, caption, message = done.stdout.strip().splitlines()
    assert len(caption.split()) > 3
    assert message.endswith("[captions]', or load an exported file") and "pip install " in message


def test_another_keras_backend_is_refused():
    done = python("import tfsparsecap", KERAS_BACKEND="jax")
    assert done.returncode == 1
    assert "KERAS_BACKEND=tensorflow" in done.stderr.strip().splitlines()[-1]


def test_all_public_names_exist_and_are_known_to_type_checkers():
    assert all(getattr(tfsparsecap, name) is not None for name in tfsparsecap.__all__)
    tree = ast.parse(Path(tfsparsecap.__file__).read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    static = {alias.name for node in imports for alias in node.names}
    assert {*tfsparsecap.__all__} - static == {"__version__"}
    with pytest.raises(AttributeError, match="has no attribute 'absent'"):
        _ = tfsparsecap.absent
    with pytest.raises(AttributeError, match=r"here, it is sc\.Gradual\(.*Schedule\(begin=0, end=1000"):
        _ = tfsparsecap.PolynomialDecay
