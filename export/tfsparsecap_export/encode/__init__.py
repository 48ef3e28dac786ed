"""Storage of the weights of a dense .tflite file in the encodings that suit their zeros.

`formats` chooses for each weight: blocks that kernels multiply as they are (`sparse`), weights that are
stored sparse and expanded when the file is loaded, int8 (`int8_weights`, rounded by `rounding`), int8 with
int8 activations (`int8_activations`, with ranges from `calibration`), float16 or float32 (`encodings`). The
choice follows `costs`, instructions of the target's kernels; `encoded_file` writes the result.
"""

#: The export formats; see `formats.choose_encoding`.
FORMATS = ("auto", "int8", "fast", "compact", "dense", "dense-int8")
#: The processors for which encodings are chosen, see `costs.TARGETS`, and the usual one.
TARGET_NAMES = ("arm64", "x86_64")
DEFAULT_TARGET = "arm64"
