"""What TFLite's kernels cost: the constants of the model that `auto` chooses encodings by.

The shipped ones were measured on one desktop core. `python -m tfsparsecap_export.benchmark --calibrate`
measures those of the machine at hand and keeps them in the user's cache, where `current` finds them.
"""

import dataclasses
import json
import math
import os
from pathlib import Path
from typing import Self

from tfsparsecap.errors import InputError
from tfsparsecap.files import atomic_write

#: The layout of the file; a file of another one is measured anew.
_FORMAT = 2
SHIPPED = "shipped"
CALIBRATE = "python -m tfsparsecap_export.benchmark --calibrate"


@dataclasses.dataclass(frozen=True)
class Costs:
    """Nanoseconds of TFLite's kernels on one core.

    A fully connected layer takes, for each stored weight, some time to bring it in and some to multiply it
    with each row. Dense weights are taken to come from memory at every call, as those of a model larger than
    the caches do; sparse ones from a cache.

    Attributes:
        dense, dense_row: float32, a weight, and a weight and row.
        int8, int8_row: dense int8, the same.
        csr, csr_once: compressed rows, a non-zero weight and row, and a non-zero weight.
        block4, block4_once: 1x4 float32 blocks, a stored weight and row, and a stored weight.
        block16, block16_once: 1x16 int8 blocks, the same.
        output, output_once: an output and row of blocks of either kind, and an output of these and of
            compressed rows.
        guess: an output and row of blocks and of compressed rows that lie in no order: how many weights it
            has differs from the one before, which the processor did not expect (see `ordering`).
        restore, restore_row: an output, and an output and row, that is put back where it belongs after
            outputs in order.
        quantize: 1x16 int8 blocks, an input and row, which becomes int8 as it comes.
        convolution, convolution_int8: a multiplication and addition of a convolution, with float32 filters
            and with int8 ones whose inputs become int8 as they come.
        depthwise, depthwise_int8: the same of a depthwise convolution.
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
        self, encoding: str, *, rows: int, outputs: int, inputs: int, stored: int, ordered: bool = False
    ) -> float:
        """Nanoseconds of one call of a fully connected layer.

        Args:
            encoding: one of the names in `sparse`; those that the runtime expands when it loads a file are
                multiplied as dense float32.
            rows: rows that are multiplied at a time.
            outputs, inputs: shape of the matrix.
            stored: weights that are stored, zeros in kept blocks included; dense encodings ignore it.
            ordered: whether the outputs lie in the order of how many weights they have.

        Example:
            >>> Costs().product("csr", rows=3, outputs=512, inputs=512, stored=13_000)
            35809.12
        """
        if encoding == "int8":
            return outputs * inputs * (self.int8 + self.int8_row * rows)
        around = outputs * (self.output_once + (0 if ordered else rows * self.guess))
        if encoding == "csr":
            return around + stored * (self.csr_once + self.csr * rows)
        around += outputs * rows * self.output
        if encoding == "1x4":
            return around + stored * (self.block4_once + self.block4 * rows)
        if encoding == "int8 1x16":
            return around + inputs * rows * self.quantize + stored * (self.block16_once + self.block16 * rows)
        return outputs * inputs * (self.dense + self.dense_row * rows)

    def restoring(self, rows: int, outputs: int) -> float:
        """Nanoseconds of putting the outputs of a layer back where they belong."""
        return outputs * (self.restore + self.restore_row * rows)

    def filter(self, multiplications: int, *, depthwise: bool = False, int8: bool = False) -> float:
        """Nanoseconds of a convolution of so many multiplications and additions."""
        if depthwise:
            return multiplications * (self.depthwise_int8 if int8 else self.depthwise)
        return multiplications * (self.convolution_int8 if int8 else self.convolution)

    @classmethod
    def load(cls, path: str | os.PathLike) -> Self:
        """The constants in a file that `save` wrote.

        Raises:
            InputError: there is no such file, or it is damaged or from another version.
        """
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise InputError(
                f"cannot read costs from {path}: {error.strerror}; write it with {_again(path)}"
            ) from error
        except ValueError as error:  # no JSON, or no UTF-8
            raise InputError(
                f"{path} is damaged ({error}): measure costs again with {_again(path)}"
            ) from error
        names = [field.name for field in dataclasses.fields(cls)]
        if not isinstance(content, dict) or content.get("format") != _FORMAT:
            raise InputError(f"{path} holds no costs of this version: measure them again with {_again(path)}")
        values = content.get("nanoseconds")
        for name in names:
            value = values.get(name) if isinstance(values, dict) else None
            if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
                raise InputError(
                    f"{path} is damaged ({name} is {value!r}, no number of nanoseconds):"
                    f" measure costs again with {_again(path)}"
                )
        return cls(**{name: float(values[name]) for name in names})

    def save(self, path: str | os.PathLike, **about) -> None:
        """Writes the constants as JSON, whole or not at all, making the folder of `path` where there is none.

        Args:
            path: where to.
            about: more to keep beside them: where, when and how well they were measured.

        Raises:
            InputError: the file cannot be written.
        """
        folder = Path(path).parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"cannot create the folder {folder}: {error.strerror}; give another file"
            ) from error
        content = {"format": _FORMAT, "nanoseconds": dataclasses.asdict(self), **about}
        atomic_write(path, json.dumps(content, indent=1) + "\n")


def default_path() -> Path:
    """Where calibrated costs are kept: `tfsparsecap/costs.json` in `$XDG_CACHE_HOME` or `~/.cache`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tfsparsecap" / "costs.json"


def current() -> Costs:
    """The costs of this machine where they were calibrated, else the shipped ones.

    Raises:
        InputError: the file of calibrated costs is damaged.
    """
    return choose(None)[0]


def choose(option: str | os.PathLike | None) -> tuple[Costs, str]:
    """The costs that a command's `--costs` asks for, and where they are from.

    Args:
        option: "shipped", a file, or None for the calibrated ones where there are any, else the shipped.

    Raises:
        InputError: the file cannot be used.

    Example:
        >>> choose("shipped")
        (Costs(dense=...), 'shipped')
    """
    if option is None:
        path = default_path()
        return (Costs.load(path), str(path)) if path.exists() else (Costs(), SHIPPED)
    return (Costs(), SHIPPED) if option == SHIPPED else (Costs.load(option), str(option))


def _again(path: str | os.PathLike) -> str:
    return CALIBRATE if Path(path) == default_path() else f"{CALIBRATE} --costs {path}"
