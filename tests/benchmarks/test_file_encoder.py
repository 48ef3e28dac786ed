"""A Keras encoder with the weights in a captioner's file, against what the runtime computes."""

from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from safetensors.numpy import save_file
from tfsparsecap_export.flatbuffer import model_file

from benchmarks.file_encoder import encoder_weights
from tfsparsecap.captioning.captioners import captioner_path
from tfsparsecap.captioning.data.images import read_image
from tfsparsecap.captioning.models import EfficientNetLiteEncoder

CAT = Path(__file__).resolve().parents[2] / "docs" / "images" / "photographs" / "cat.jpg"
CONVOLUTIONS = 48  # of EfficientNet-Lite0 without the last one


@pytest.mark.slow
def test_its_features_are_those_that_the_runtime_computes(tmp_path):
    path = captioner_path("small")
    save_file(encoder_weights(path, 0), tmp_path / "encoder.safetensors")
    encoder = EfficientNetLiteEncoder(0, "blocks.15.bn2", weights=str(tmp_path / "encoder.safetensors"))
    image = read_image(CAT, 224)[None]
    features = np.asarray(encoder(image))[0]

    model = model_file.read_model(path.read_bytes())
    operators = model.subgraphs[0].operators
    kinds = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
    convolutions = [o for o in operators if model_file.builtin_name(model, o) in kinds]
    run = Interpreter(
        str(path),
        experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        experimental_preserve_all_tensors=True,
    )
    run.allocate_tensors()
    run.set_tensor(run.get_input_details()[0]["index"], image)
    run.invoke()
    index = int(convolutions[CONVOLUTIONS - 1].outputs[0])
    (details,) = (tensor for tensor in run.get_tensor_details() if tensor["index"] == index)
    scale, zero = details["quantization"]
    expected = (run.get_tensor(index).astype(np.float32) - zero) * (scale or 1)
    error = features - expected.reshape(features.shape)
    assert np.linalg.norm(error) < 0.1 * np.linalg.norm(expected)
