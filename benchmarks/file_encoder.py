"""The encoder in the file of a captioner, to train other captioners on the same features."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
from tfsparsecap_export.flatbuffer import model_file

from tfsparsecap.captioning.models.image_encoders.efficientnet_lite import efficientnet_lite
from tfsparsecap.errors import InputError

_SPREAD = 1e-3  # epsilon of batch normalisation
_SCALE = 128.0  # of the images, which the file's first convolution divides by it
_LAYERS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
_LAST = "conv_head", "bn1"


def encoder_weights(path: Path, variant: int) -> dict[str, np.ndarray]:
    """The weights of an EfficientNet-Lite up to its last block, from a captioner's .tflite file.

    Batch normalisation, which the file has in its convolutions, only adds their biases. The last convolution,
    which a captioner does not need, is zero.

    Args:
        path: the file.
        variant: 0 to 3.

    Returns:
        Weights as in PyTorch, under the names of the layers after an underscore, which
        `model.encoder.weights` takes in a .safetensors file.

    Raises:
        InputError: the file is damaged, or has another encoder.
    """
    model = model_file.read_model(path.read_bytes(), str(path))
    graph = model.subgraphs[0]
    operators = iter([o for o in graph.operators if model_file.builtin_name(model, o) in _LAYERS])
    # What DEQUANTIZE and DENSIFY expand is stored as their input.
    stored = {int(o.outputs[0]): int(o.inputs[0]) for o in graph.operators if len(o.inputs) == 1}
    weights: dict[str, np.ndarray] = {}
    bias = np.zeros(0, np.float32)
    for layer in efficientnet_lite(variant).layers:
        shapes = [tuple(weight.shape) for weight in layer.weights]
        if isinstance(layer, keras.layers.BatchNormalization):
            zeros, ones = np.zeros(shapes[0], np.float32), np.ones(shapes[0], np.float32)
            added = zeros if layer.name == _LAST[1] else bias
            values = {"weight": ones, "bias": added, "running_mean": zeros}
            values["running_var"] = ones - np.float32(_SPREAD)
            weights |= {f"_{layer.name}.{name}": array for name, array in values.items()}
        elif shapes:
            axes = (2, 3, 0, 1) if isinstance(layer, keras.layers.DepthwiseConv2D) else (3, 2, 0, 1)
            kernel = np.zeros(shapes[0], np.float32).transpose(axes)
            if layer.name != _LAST[0]:
                expected = kernel.shape
                operator = next(operators, None)
                kernel = _kernel(model, operator, stored) if operator is not None else kernel[:0]
                if operator is None or kernel.shape != expected:
                    raise InputError(
                        f"{path} has another encoder than EfficientNet-Lite{variant}: give another file"
                    )
                bias = _values(model, int(operator.inputs[2]))
            weights[f"_{layer.name}.weight"] = np.ascontiguousarray(kernel)
    weights["_conv_stem.weight"] *= _SCALE
    return weights


def _kernel(model: Any, operator: Any, stored: dict[int, int]) -> np.ndarray:
    """The kernel of a layer in PyTorch's layout."""
    index = int(operator.inputs[1])
    kernel, kind = _values(model, stored.get(index, index)), model_file.builtin_name(model, operator)
    if kind == "FULLY_CONNECTED":
        return kernel[:, :, None, None]
    return kernel.transpose((3, 0, 1, 2) if kind == "DEPTHWISE_CONV_2D" else (0, 3, 1, 2))


def _values(model: Any, index: int) -> np.ndarray:
    """The constant in a tensor as float32."""
    tensor = model.subgraphs[0].tensors[index]
    types = {"FLOAT32": "<f4", "FLOAT16": "<f2", "INT8": "i1", "INT32": "<i4"}
    dtype = {getattr(model_file.schema.TensorType, name): dtype for name, dtype in types.items()}[tensor.type]
    data = np.frombuffer(model.buffers[tensor.buffer].data.tobytes(), dtype)
    values = data.reshape(tensor.shape).astype(np.float32)
    if tensor.quantization is None or tensor.quantization.scale is None or dtype in ("<f4", "<f2"):
        return values
    shape = [1] * values.ndim
    shape[tensor.quantization.quantizedDimension] = len(tensor.quantization.scale)
    return values * np.asarray(tensor.quantization.scale, np.float32).reshape(shape)
