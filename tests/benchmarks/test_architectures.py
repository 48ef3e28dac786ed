"""Constant channels of each architecture are removed without changing its outputs.

The networks take small images and end after the first blocks of each kind. `tests/slimming` has a U-Net, a
vision transformer, a Conv1D network and a decoder; `python -m benchmarks.slim` uses whole networks.
"""

import keras
import numpy as np
import pytest
from keras import layers

import tfsparsecap as sc
from benchmarks.architectures import ARCHITECTURES
from benchmarks.slim import TOLERANCE
from benchmarks.zero_channels import randomize, zero_channels
from tfsparsecap.captioning import models

#: Network -> its smallest image, the last layer that is kept, and further arguments.
APPLICATIONS = {
    "ConvNeXtTiny": (32, "convnext_tiny_stage_1_block_0_identity", {}),
    "DenseNet121": (32, "conv3_block2_concat", {}),
    "EfficientNetV2B0": (32, "block4b_add", {}),
    "InceptionResNetV2": (75, "block35_2_ac", {}),
    "InceptionV3": (75, "mixed3", {}),
    "MobileNetV3Small": (32, "expanded_conv_4_add", {}),
    "NASNetMobile": (32, "normal_concat_0", {}),
    "ResNet50": (32, "conv3_block2_out", {}),
    "ResNet50V2": (32, "conv3_block2_out", {}),
    "VGG16": (32, "block3_pool", {}),
    "Xception": (71, "block4_sepconv1_act", {}),
}
ENCODERS = {"EfficientNetLite0": ("EfficientNetLiteEncoder", "blocks.4")}
#: Each repeats the blocks of the other, some with fewer kinds of layers in them.
REPEATED = {
    **{"MobileNetV3Large": "MobileNetV3Small", "ResNet101": "ResNet50", "ResNet101V2": "ResNet50V2"},
    **{"MobileNetV2": "MobileNetV3Small", "EfficientNetB0": "EfficientNetV2B0", "InceptionV1": "InceptionV3"},
    **{"MobileNet": "EfficientNetLite0", "keras_cv.ResNet50Backbone": "ResNet50"},
    "keras_cv.ResNet101Backbone": "ResNet50",
}
#: In `tests/slimming`.
ELSEWHERE = {"TinyViT", "u_net", "vision_transformer", "conv1d", "decoder"}
#: Network of keras_cv -> its kind of block.
KERAS_CV = {"keras_cv.ResNet18Backbone": "basic_block"}


class Reached(Exception):
    """Ends the construction of a network after a layer: the later layers would take most of the time."""


def beginning(create, last, monkeypatch):
    """The output of the layer `last` of a network."""
    call = layers.Layer.__call__

    def watched(layer, *args, **options):
        result = call(layer, *args, **options)
        if layer.name == last:
            raise Reached(result)
        return result

    with monkeypatch.context() as patch, pytest.raises(Reached) as reached:
        patch.setattr(layers.Layer, "__call__", watched)
        create()
    return reached.value.args[0]


def network(name, monkeypatch):
    """The first blocks of an architecture, and a classifier."""
    if name in KERAS_CV:
        import keras_cv

        x = keras_cv.models.ResNetBackbone(
            stackwise_filters=[64, 32],
            stackwise_blocks=[2, 2],
            stackwise_strides=[1, 2],
            include_rescaling=False,
            input_shape=(32, 32, 3),
            block_type=KERAS_CV[name],
        ).output
    elif name in ENCODERS:
        kind, last = ENCODERS[name]
        x = beginning(lambda: getattr(models, kind)(weights=None, image_size=32), last, monkeypatch)
    else:
        size, last, options = APPLICATIONS[name]
        options = {"weights": None, "include_top": False, "input_shape": (size, size, 3), **options}
        x = beginning(lambda: getattr(keras.applications, name)(**options), last, monkeypatch)
    (image,) = keras.utils.get_source_inputs(x)
    return keras.Model(image, layers.Dense(3)(layers.GlobalAveragePooling2D()(x)))


def test_every_architecture_is_tested():
    tested = {*APPLICATIONS, *ENCODERS, *KERAS_CV, *REPEATED, *ELSEWHERE}
    assert tested == set(ARCHITECTURES)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*APPLICATIONS, *ENCODERS, *KERAS_CV])
def test_constant_channels_go_without_effect(name, monkeypatch):
    model, rng = network(name, monkeypatch), np.random.default_rng(0)
    x = rng.random((2, *model.input_shape[1:]), "float32")
    randomize(model, x, rng)
    chosen, exact = zero_channels(model, rng)
    # A layer normalisation mixes its channels, and constants before padding are not exact (NASNet).
    assert exact == chosen or (name in ("ConvNeXtTiny", "NASNetMobile") and exact > chosen / 2)
    smaller = sc.slim(model, None, multiple=1)
    assert smaller.count_params() < 0.75 * model.count_params()
    before, after = np.asarray(model(x)), np.asarray(smaller(x))
    assert np.abs(after - before).max() < TOLERANCE * np.abs(before).max()
