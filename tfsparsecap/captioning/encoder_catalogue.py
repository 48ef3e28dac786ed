"""The encoders that settings can name, with their published accuracy, size and licence."""

import difflib
from dataclasses import dataclass

from tfsparsecap.errors import InputError

#: Start of the names of KerasHub's presets.
KERAS_HUB = "keras_hub:"
#: Start of the names of EfficientNet-Lite, which end with the number of the variant.
LITE = "efficientnet_lite"

APACHE, MIT, BSD, CC_BY = "Apache-2.0", "MIT", "BSD-3-Clause", "CC-BY-4.0"
KERAS = "Keras (download)"
HUB = "Hugging Face Hub (download)"
SLIM = "file of TF-Slim"


@dataclass(frozen=True)
class EncoderEntry:
    """Facts about an encoder, cut at its last feature map, or `inception_v1` at the SMP paper's Mixed_4f.

    Attributes:
        top_1: published top-1 accuracy of the whole classifier on ImageNet's validation split, in percent.
        parameters: number of weights up to the feature map, including those of batch normalisation.
        multiply_adds: for one image, up to the feature map.
        image_size: height and width in pixels of the images that the weights were trained with.
        feature_map: height, width and channels.
        licence: of the published weights.
        source: where the published weights come from.
    """

    top_1: float
    parameters: int
    multiply_adds: int
    image_size: int
    feature_map: tuple[int, int, int]
    licence: str
    source: str


# Accuracy: https://keras.io/api/applications; the docstrings of keras.applications for MobileNet-V1 0.75 and
# MobileNet-V3; TF-Slim for Inception-V1; https://arxiv.org/abs/2207.10666 for TinyViT, after fine-tuning on
# ImageNet-1k; https://github.com/tensorflow/tpu/tree/master/models/official/efficientnet/lite.
# Licences: those that Keras and the authors name for their weights.
CATALOGUE = {
    "tiny_vit_5m": EncoderEntry(80.7, 5_080_980, 1_254_854_720, 224, (7, 7, 320), MIT, HUB),
    "efficientnet_lite0": EncoderEntry(75.1, 3_413_024, 383_907_552, 224, (7, 7, 1280), APACHE, HUB),
    "efficientnet_lite1": EncoderEntry(76.7, 4_189_344, 598_905_232, 240, (8, 8, 1280), APACHE, HUB),
    "efficientnet_lite2": EncoderEntry(77.6, 4_869_168, 858_456_272, 260, (9, 9, 1280), APACHE, HUB),
    "efficientnet_lite3": EncoderEntry(79.8, 6_992_768, 1_382_041_872, 280, (9, 9, 1280), APACHE, HUB),
    "mobilenet_v1": EncoderEntry(68.4, 1_832_976, 324_632_448, 224, (7, 7, 768), APACHE, KERAS),
    "inception_v1": EncoderEntry(69.8, 3_278_912, 1_383_603_200, 224, (14, 14, 832), APACHE, SLIM),
    "VGG16": EncoderEntry(71.3, 14_714_688, 15_346_630_656, 224, (7, 7, 512), CC_BY, KERAS),
    "VGG19": EncoderEntry(71.3, 20_024_384, 19_508_428_800, 224, (7, 7, 512), CC_BY, KERAS),
    "ResNet50": EncoderEntry(74.9, 23_587_712, 3_855_925_248, 224, (7, 7, 2048), MIT, KERAS),
    "ResNet101": EncoderEntry(76.4, 42_658_176, 7_568_146_432, 224, (7, 7, 2048), MIT, KERAS),
    "ResNet152": EncoderEntry(76.6, 58_370_944, 11_280_367_616, 224, (7, 7, 2048), MIT, KERAS),
    "ResNet50V2": EncoderEntry(76.0, 23_564_800, 3_480_207_360, 224, (7, 7, 2048), APACHE, KERAS),
    "ResNet101V2": EncoderEntry(77.2, 42_626_560, 7_192_428_544, 224, (7, 7, 2048), APACHE, KERAS),
    "ResNet152V2": EncoderEntry(78.0, 58_331_648, 10_904_649_728, 224, (7, 7, 2048), APACHE, KERAS),
    "InceptionV3": EncoderEntry(77.9, 21_802_784, 5_711_168_096, 299, (8, 8, 2048), APACHE, KERAS),
    "InceptionResNetV2": EncoderEntry(80.3, 54_336_736, 13_154_258_016, 299, (8, 8, 1536), APACHE, KERAS),
    "Xception": EncoderEntry(79.0, 20_861_480, 8_355_355_496, 299, (10, 10, 2048), MIT, KERAS),
    "MobileNet": EncoderEntry(70.4, 3_228_864, 567_716_352, 224, (7, 7, 1024), APACHE, KERAS),
    "MobileNetV2": EncoderEntry(71.3, 2_257_984, 299_494_272, 224, (7, 7, 1280), APACHE, KERAS),
    "MobileNetV3Small": EncoderEntry(68.1, 939_120, 54_896_576, 224, (7, 7, 576), APACHE, KERAS),
    "MobileNetV3Large": EncoderEntry(75.6, 2_996_352, 214_080_960, 224, (7, 7, 960), APACHE, KERAS),
    "DenseNet121": EncoderEntry(75.0, 7_037_504, 2_833_137_664, 224, (7, 7, 1024), BSD, KERAS),
    "DenseNet169": EncoderEntry(76.2, 12_642_880, 3_358_179_328, 224, (7, 7, 1664), BSD, KERAS),
    "DenseNet201": EncoderEntry(77.3, 18_321_984, 4_289_445_888, 224, (7, 7, 1920), BSD, KERAS),
    "NASNetMobile": EncoderEntry(74.4, 4_269_716, 562_582_816, 224, (7, 7, 1056), APACHE, KERAS),
    "NASNetLarge": EncoderEntry(82.5, 84_916_818, 23_779_382_658, 331, (11, 11, 4032), APACHE, KERAS),
    "EfficientNetB0": EncoderEntry(77.1, 4_049_571, 384_534_752, 224, (7, 7, 1280), APACHE, KERAS),
    "EfficientNetB1": EncoderEntry(79.1, 6_575_239, 685_522_832, 240, (8, 8, 1280), APACHE, KERAS),
    "EfficientNetB2": EncoderEntry(80.1, 7_768_569, 992_153_872, 260, (9, 9, 1408), APACHE, KERAS),
    "EfficientNetB3": EncoderEntry(81.6, 10_783_535, 1_825_605_392, 300, (10, 10, 1536), APACHE, KERAS),
    "EfficientNetB4": EncoderEntry(82.9, 17_673_823, 4_391_979_024, 380, (12, 12, 1792), APACHE, KERAS),
    "EfficientNetB5": EncoderEntry(83.6, 28_513_527, 10_264_336_752, 456, (15, 15, 2048), APACHE, KERAS),
    "EfficientNetB6": EncoderEntry(84.0, 40_960_143, 19_065_289_536, 528, (17, 17, 2304), APACHE, KERAS),
    "EfficientNetB7": EncoderEntry(84.3, 64_097_687, 37_743_324_192, 600, (19, 19, 2560), APACHE, KERAS),
    "EfficientNetV2B0": EncoderEntry(78.7, 5_919_312, 716_806_176, 224, (7, 7, 1280), APACHE, KERAS),
    "EfficientNetV2B1": EncoderEntry(79.8, 6_931_124, 1_195_539_360, 240, (8, 8, 1280), APACHE, KERAS),
    "EfficientNetV2B2": EncoderEntry(80.5, 8_769_374, 1_696_134_832, 260, (9, 9, 1408), APACHE, KERAS),
    "EfficientNetV2B3": EncoderEntry(82.0, 12_930_622, 3_009_922_816, 300, (10, 10, 1536), APACHE, KERAS),
    "EfficientNetV2S": EncoderEntry(83.9, 20_331_360, 8_364_337_152, 384, (12, 12, 1280), APACHE, KERAS),
    "EfficientNetV2M": EncoderEntry(85.3, 53_150_388, 24_581_180_384, 480, (15, 15, 1280), APACHE, KERAS),
    "EfficientNetV2L": EncoderEntry(85.7, 117_746_848, 56_078_419_008, 480, (15, 15, 1280), APACHE, KERAS),
    "ConvNeXtTiny": EncoderEntry(81.3, 27_820_128, 4_454_763_264, 224, (7, 7, 768), MIT, KERAS),
    "ConvNeXtSmall": EncoderEntry(82.3, 49_454_688, 8_682_944_256, 224, (7, 7, 768), MIT, KERAS),
    "ConvNeXtBase": EncoderEntry(85.3, 87_566_464, 15_353_705_472, 224, (7, 7, 1024), MIT, KERAS),
    "ConvNeXtLarge": EncoderEntry(86.3, 196_230_336, 34_359_897_600, 224, (7, 7, 1536), MIT, KERAS),
    "ConvNeXtXLarge": EncoderEntry(86.7, 348_147_968, 60_918_982_656, 224, (7, 7, 2048), MIT, KERAS),
}


def entry_of(network: str) -> EncoderEntry | None:
    """The facts about a network; None for presets of KerasHub.

    Raises:
        InputError: there is no such network.
    """
    if network in CATALOGUE or network.startswith(KERAS_HUB):
        return CATALOGUE.get(network)
    names = {name.lower(): name for name in CATALOGUE}
    similar = difflib.get_close_matches(network.lower(), names, n=1)
    hint = f"did you mean {names[similar[0]]}? " if similar else ""
    raise InputError(
        f"there is no network {network!r}: {hint}python -m tfsparsecap.encoders lists all networks"
    )
