"""The backbones of KerasHub in `benchmarks.zoo`, in small sizes with random weights."""

from collections.abc import Callable
from typing import Any

import keras

WORDS, LENGTH = 40, 12

_ENCODER = {"vocabulary_size": WORDS, "num_layers": 2, "num_heads": 2, "hidden_dim": 16}
_ENCODER |= {"intermediate_dim": 32}
_PLACED = {**_ENCODER, "max_sequence_length": LENGTH}
_DECODER = {"vocabulary_size": WORDS, "num_layers": 2, "num_query_heads": 4, "num_key_value_heads": 2}
_DECODER |= {"hidden_dim": 16, "intermediate_dim": 32}
_IMAGE = {"image_shape": (32, 32, 3)}
_VISION = {**_IMAGE, "patch_size": 8, "num_layers": 2, "num_heads": 2, "hidden_dim": 16}


def _without(sizes: dict, *names: str) -> dict:
    return {name: size for name, size in sizes.items() if name not in names}


def _mit() -> dict:
    return {
        **_IMAGE,
        "num_layers": 2,
        "hidden_dims": [16, 32],
        "layerwise_depths": [1, 1],
        "layerwise_num_heads": [1, 2],
        "layerwise_sr_ratios": [2, 1],
        "layerwise_patch_sizes": [7, 3],
        "layerwise_strides": [4, 2],
        "max_drop_path_rate": 0.1,
    }


def _resnet() -> dict:
    return {
        **_IMAGE,
        "input_conv_filters": [64],
        "input_conv_kernel_sizes": [7],
        "stackwise_num_filters": [64, 64],
        "stackwise_num_blocks": [1, 1],
        "stackwise_num_strides": [1, 2],
        "block_type": "basic_block",
    }


def _segformer(hub: Any) -> dict:
    return {"image_encoder": hub.MiTBackbone(**_mit()), "projection_filters": 16}


def _deep_lab(hub: Any) -> dict:
    return {
        **_IMAGE,
        "image_encoder": hub.ResNetBackbone(**_resnet()),
        "spatial_pyramid_pooling_key": "P3",
        "low_level_feature_key": "P2",
        "upsampling_size": 2,
        "dilation_rates": [1, 2],
        "projection_filters": 8,
    }


def _clip(hub: Any) -> dict:
    text = {**_ENCODER, "embedding_dim": 16, "max_sequence_length": LENGTH}
    vision = hub.CLIPVisionEncoder(**_VISION, intermediate_dim=32)
    return {"vision_encoder": vision, "text_encoder": hub.CLIPTextEncoder(**text), "projection_dim": 8}


#: Backbone -> its sizes, or a function of `keras_hub.models` that returns them.
SIZES: dict[str, dict | Callable[[Any], dict]] = {
    "AlbertBackbone": {**_PLACED, "embedding_dim": 8},
    "BartBackbone": _PLACED,
    "BertBackbone": _PLACED,
    "BloomBackbone": _ENCODER,
    "CLIPBackbone": _clip,
    "CSPNetBackbone": {
        **_IMAGE,
        "stem_filters": 8,
        "stem_kernel_size": 3,
        "stem_strides": 1,
        "stackwise_depth": [1, 2],
        "stackwise_strides": [1, 2],
        "stackwise_num_filters": [16, 32],
        "block_type": "dark_block",
        "stage_type": "dark",
    },
    "DINOV2Backbone": {**_VISION, "intermediate_dim": 32, "position_embedding_shape": (32, 32, 3)},
    "DebertaV3Backbone": {**_PLACED, "bucket_size": 8},
    "DeepLabV3Backbone": _deep_lab,
    "DeiTBackbone": {**_VISION, "intermediate_dim": 32},
    "DenseNetBackbone": {**_IMAGE, "stackwise_num_repeats": [2, 2], "growth_rate": 8},
    "DistilBertBackbone": _PLACED,
    "ESM2Backbone": _PLACED,
    "EfficientNetBackbone": {
        "input_shape": (32, 32, 3),
        "stackwise_width_coefficients": [1.0, 1.0],
        "stackwise_depth_coefficients": [1.0, 1.0],
        "stackwise_kernel_sizes": [3, 3],
        "stackwise_num_repeats": [1, 2],
        "stackwise_input_filters": [8, 8],
        "stackwise_output_filters": [8, 16],
        "stackwise_expansion_ratios": [1, 4],
        "stackwise_squeeze_and_excite_ratios": [0.0, 0.25],
        "stackwise_strides": [1, 2],
        "stackwise_block_types": ["fused", "unfused"],
        "stackwise_force_input_filters": [0, 0],
        "stackwise_nores_option": [False, False],
    },
    "ElectraBackbone": {**_without(_PLACED, "vocabulary_size"), "vocab_size": WORDS, "embedding_dim": 8},
    "FNetBackbone": _without(_PLACED, "num_heads"),
    "FalconBackbone": {**_without(_ENCODER, "num_heads"), "num_attention_heads": 2},
    "GPT2Backbone": _PLACED,
    "GPTNeoXBackbone": _PLACED,
    "Gemma3Backbone": {**_DECODER, "head_dim": 8, "image_size": 16},
    "GemmaBackbone": {**_DECODER, "head_dim": 8},
    "HGNetV2Backbone": {
        **_IMAGE,
        "depths": [1, 1],
        "embedding_size": 8,
        "hidden_sizes": [16, 32],
        "stem_channels": [3, 8, 8],
        "hidden_act": "relu",
        "use_learnable_affine_block": False,
        "stackwise_stage_filters": [(8, 8, 16, 1, 1, 3), (16, 8, 32, 1, 1, 3)],
        "apply_downsample": [False, True],
        "use_lightweight_conv_block": [False, False],
    },
    "Llama3Backbone": _DECODER,
    "LlamaBackbone": _DECODER,
    "MiTBackbone": _mit(),
    "MistralBackbone": {**_DECODER, "sliding_window": 8},
    "MixtralBackbone": {**_DECODER, "num_experts": 2, "sliding_window": 8},
    "MobileNetBackbone": {
        **_IMAGE,
        "stackwise_expansion": [[16, 24], [32]],
        "stackwise_num_blocks": [2, 1],
        "stackwise_num_filters": [[16, 16], [24]],
        "stackwise_kernel_size": [[3, 3], [5]],
        "stackwise_num_strides": [[2, 1], [2]],
        "stackwise_se_ratio": [[None, None], [0.25]],
        "stackwise_activation": [["relu", "relu"], ["hard_swish"]],
        "stackwise_padding": [[1, 1], [2]],
        "output_num_filters": 32,
        "depthwise_filters": 8,
        "depthwise_stride": 1,
        "depthwise_residual": False,
        "last_layer_filter": 32,
        "squeeze_and_excite": 0.5,
    },
    "OPTBackbone": _PLACED,
    "Phi3Backbone": _DECODER,
    "Qwen2Backbone": _DECODER,
    "Qwen3Backbone": {**_DECODER, "head_dim": 8},
    "ResNetBackbone": _resnet(),
    "RobertaBackbone": _PLACED,
    "RoformerV2Backbone": {**_ENCODER, "head_size": 8},
    "SegFormerBackbone": _segformer,
    "SwinTransformerBackbone": {
        **_IMAGE,
        "embed_dim": 16,
        "drop_path": 0.0,
        "depths": (1, 1),
        "num_heads": (2, 4),
        "window_size": 4,
        "patch_size": 2,
    },
    "T5Backbone": _ENCODER,
    "VGGBackbone": {**_IMAGE, "stackwise_num_repeats": [1, 2], "stackwise_num_filters": [8, 16]},
    "ViTBackbone": {**_VISION, "mlp_dim": 32},
    "ViTDetBackbone": {
        **_IMAGE,
        "patch_size": 4,
        "hidden_size": 16,
        "num_layers": 2,
        "global_attention_layer_indices": [1],
        "intermediate_dim": 32,
        "num_heads": 2,
        "num_output_channels": 8,
        "window_size": 2,
    },
    "WhisperBackbone": {
        **_ENCODER,
        "num_mels": 8,
        "max_encoder_sequence_length": LENGTH,
        "max_decoder_sequence_length": LENGTH,
    },
    "XLMRobertaBackbone": _PLACED,
    "XLNetBackbone": _ENCODER,
    "XceptionBackbone": {
        **_IMAGE,
        "stackwise_conv_filters": [[8, 16], [16, 32]],
        "stackwise_pooling": [True, False],
    },
}


def backbone(name: str) -> keras.Model:
    """A backbone of KerasHub with random weights."""
    import keras_hub

    sizes = SIZES[name]
    if callable(sizes):
        sizes = sizes(keras_hub.models)
    return getattr(keras_hub.models, name)(**sizes)
