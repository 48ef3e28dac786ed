"""Costs of TFLite's kernels, by which `auto` chooses encodings.

The shipped costs were measured on one desktop core. `python -m tfsparsecap_export.benchmark --calibrate`
measures those of this machine and stores them in the user's cache, where `choose` finds them.
"""

import dataclasses
import json
import math
import os
from pathlib import Path
from typing import Self

from tfsparsecap.errors import InputError
from tfsparsecap.files import atomic_write, cache_folder, make_folder, read_json

#: Version of the file format; costs in other versions must be measured again.
_FORMAT = 2
SHIPPED = "shipped"
CALIBRATE = "python -m tfsparsecap_export.benchmark --calibrate"


@dataclasses.dataclass(frozen=True)
class Costs:
    """Nanoseconds of TFLite's kernels on one core.

    The time of a fully connected layer has a part per stored weight, to load it, and a part per weight and
    row, to multiply it. Dense weights are assumed to come from memory at every call, as in a model that is
    larger than the caches, sparse ones from a cache.

    Attributes:
        dense, dense_row: float32, per weight, and per weight and row.
        int8, int8_row: dense int8, per weight, and per weight and row.
        csr, csr_once: compressed rows, per non-zero weight and row, and per non-zero weight.
        block4, block4_once: 1x4 float32 blocks, per stored weight and row, and per stored weight.
        block16, block16_once: 1x16 int8 blocks, per stored weight and row, and per stored weight.
        output, output_once: blocks, per output and row; blocks and compressed rows, per output.
        guess: misprediction of unsorted blocks and compressed rows, per output and row (see `ordering`).
        restore, restore_row: restoring the order of sorted outputs, per output, and per output and row.
        quantize: quantization of the inputs of 1x16 int8 blocks, per input and row.
        convolution, convolution_int8: convolution with float32 filters, and with int8 filters and quantized
            inputs, per multiply-add.
        depthwise, depthwise_int8: the same for a depthwise convolution.
    """

    dense: float = 0.17
    dense_row: float = 0.023
    int8: float = 0.028
    int8_row: float = 0.019
    csr: float = 0.59
    csr_once: float = 0.61
    block4: float = 0.15
    block4_once: float = 0.16
    block16: float = 0.038
    block16_once: float = 0.0085
    output: float = 0.55
    output_once: float = 1.95
    guess: float = 2.52
    restore: float = 0.6
    restore_row: float = 1.7
    quantize: float = 1.08
    convolution: float = 0.023
    convolution_int8: float = 0.021
    depthwise: float = 0.061
    depthwise_int8: float = 0.24

    def product(
        self, encoding: str, *, rows: int, outputs: int, inputs: int, stored: float, ordered: bool = False
    ) -> float:
        """Nanoseconds of one call of a fully connected layer.

        Args:
            encoding: one of the names in `sparse`; encodings that the runtime expands when it loads a file
                are multiplied as dense float32.
            rows: number of rows that are multiplied per call.
            outputs, inputs: shape of the matrix.
            stored: number of stored weights, including zeros in non-zero blocks; ignored for dense encodings.
            ordered: whether the outputs are sorted by their number of weights.

        Examples:
            >>> Costs().product("csr", rows=3, outputs=512, inputs=512, stored=13_000)
            35809.12
        """
        if encoding == "int8":
            return outputs * inputs * (self.int8 + self.int8_row * rows)
        per_output = outputs * (self.output_once + (0 if ordered else rows * self.guess))
        if encoding == "csr":
            return per_output + stored * (self.csr_once + self.csr * rows)
        per_output += outputs * rows * self.output
        if encoding == "1x4":
            return per_output + stored * (self.block4_once + self.block4 * rows)
        if encoding == "int8 1x16":
            return (
                per_output
                + inputs * rows * self.quantize
                + stored * (self.block16_once + self.block16 * rows)
            )
        return outputs * inputs * (self.dense + self.dense_row * rows)

    def restoring(self, rows: int, outputs: int) -> float:
        """Nanoseconds to restore the order of the outputs of a layer."""
        return outputs * (self.restore + self.restore_row * rows)

    def filter(self, multiply_adds: float, *, depthwise: bool = False, int8: bool = False) -> float:
        """Nanoseconds of a convolution."""
        if depthwise:
            return multiply_adds * (self.depthwise_int8 if int8 else self.depthwise)
        return multiply_adds * (self.convolution_int8 if int8 else self.convolution)

    @classmethod
    def load(cls, path: str | os.PathLike) -> Self:
        """Loads a file that `save` wrote.

        Raises:
            InputError: the file does not exist, is damaged, or has another version.
        """
        names = [field.name for field in dataclasses.fields(cls)]
        again = CALIBRATE if Path(path) == default_path() else f"{CALIBRATE} --costs {path}"
        content = read_json(path, f"measure costs again with {again}")
        try:
            if content["format"] != _FORMAT:
                raise ValueError("its costs are of another version")
            values = {name: float(content["nanoseconds"][name]) for name in names}
            if wrong := [name for name, value in values.items() if not 0 <= value < math.inf]:
                raise ValueError(f"{wrong[0]} is {values[wrong[0]]}, not a number of nanoseconds")
        except (ValueError, TypeError, KeyError) as error:
            raise InputError(f"{path} is damaged ({error}): measure costs again with {again}") from error
        return cls(**values)

    def save(self, path: str | os.PathLike, **about) -> None:
        """Writes the costs as JSON, atomically; creates the folder of `path` if necessary.

        Args:
            path: path of the file.
            about: additional entries about the measurement.

        Raises:
            InputError: the file cannot be written.
        """
        make_folder(Path(path).parent)
        content = {"format": _FORMAT, "nanoseconds": dataclasses.asdict(self), **about}
        atomic_write(path, json.dumps(content, indent=1) + "\n")


def default_path() -> Path:
    """Path of the calibrated costs: `tfsparsecap/costs.json` in `$XDG_CACHE_HOME` or `~/.cache`."""
    return cache_folder() / "costs.json"


def choose(option: str | os.PathLike | None) -> tuple[Costs, str]:
    """The costs for the option `--costs` of a command, and their origin.

    Args:
        option: "shipped", a file, or None for the calibrated costs if they exist, else the shipped ones.

    Raises:
        InputError: the file cannot be used.

    Examples:
        >>> choose("shipped")
        (Costs(dense=...), 'shipped')
    """
    if option is None:
        path = default_path()
        return (Costs.load(path), str(path)) if path.exists() else (Costs(), SHIPPED)
    return (Costs(), SHIPPED) if option == SHIPPED else (Costs.load(option), str(option))
