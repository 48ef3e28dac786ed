"""Measures the constants of the cost model on this machine: `tfsparsecap_export.benchmark --calibrate`."""

import dataclasses
import platform
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np

from tfsparsecap.errors import InputError
from tfsparsecap_export.encode import costs, encodings
from tfsparsecap_export.encode.costs import Costs
from tfsparsecap_export.measure import one_operator
from tfsparsecap_export.measure.one_operator import run_seconds
from tfsparsecap_export.tables import new_table

#: Bytes of weights in a file whose weights come from memory: more than the caches hold.
_STREAMED_BYTES = 64 << 20
#: Outputs of all matrices in a file of sparse layers. With only a few thousand outputs, the processor would
#: learn to predict how many weights each has, which it cannot do in a model.
_SPARSE_OUTPUTS = 32768
#: Runs of a file in a turn: other files have evicted its weights from the caches before the first one.
_RUNS_PER_TURN = 4
_SEED = 0


@dataclasses.dataclass(frozen=True)
class Case:
    """A file to time.

    Attributes:
        kind: name of an encoding, or "convolution" or "depthwise", optionally followed by " int8".
        shape: outputs and inputs of a fully connected layer; filter size, channels and image size of a
            convolution.
        rows: rows of the input.
        kept: share of the blocks of weights that are not zero.
        block: neighbouring weights that are zero together.
        copies: number of operations in the file, each with its own weights.
        streamed: whether the weights should come from memory.
        order: of the outputs, a constant of `one_operator`.
    """

    kind: str
    shape: tuple[int, ...]
    rows: int = 1
    kept: float = 1.0
    block: int = 1
    copies: int = 1
    streamed: bool = False
    order: str = one_operator.AS_GIVEN

    def ns(self, stored: float, constants: Costs) -> float:
        """Nanoseconds of one operation according to the cost model.

        Args:
            stored: its stored weights, or the multiplications of a convolution.
            constants: of the cost model.
        """
        kind, _, int8 = self.kind.partition(" ")
        if kind in ("convolution", "depthwise"):
            return constants.filter(stored, depthwise=kind == "depthwise", int8=bool(int8))
        if not self.streamed:  # the weights are in the cache
            constants = dataclasses.replace(constants, dense=0.0, int8=0.0)
        outputs, inputs = self.shape
        ordered = self.order != one_operator.AS_GIVEN
        ns = constants.product(
            self.kind, rows=self.rows, outputs=outputs, inputs=inputs, stored=stored, ordered=ordered
        )
        restored = self.order == one_operator.RESTORED
        return ns + (constants.restoring(self.rows, outputs) if restored else 0.0)


@dataclasses.dataclass(frozen=True)
class Timing:
    """A case, the stored weights (or multiplications) of one of its operations, and its nanoseconds."""

    case: Case
    stored: float
    ns: float


@dataclasses.dataclass(frozen=True)
class Calibration:
    """The result of a calibration.

    Attributes:
        costs: the constants that fit best.
        errors: kind of case -> median and largest error of the fit, relative to the measured time.
        timings: the measured times.
        rounds: turns of each file.
    """

    costs: Costs
    errors: dict[str, tuple[float, float]]
    timings: list[Timing]
    rounds: int

    def save(self, path: Path) -> None:
        """Writes the constants, how well they fit, and where and when they were measured.

        Raises:
            InputError: the file cannot be written.
        """
        self.costs.save(
            path,
            relative_errors={kind: list(error) for kind, error in self.errors.items()},
            rounds=self.rounds,
            runtime=f"ai-edge-litert {version('ai-edge-litert')}",
            processor=platform.machine(),
            measured=time.strftime("%Y-%m-%d"),
        )


def cases(scale: float = 1.0) -> list[Case]:
    """The files to time.

    Args:
        scale: factor for the sizes of layers; tests use tiny ones.
    """

    def side(size):
        return max(32, int(size * scale) // 16 * 16)

    found = []
    large = (side(1024), side(2048))
    for kind, size in ((encodings.DENSE, 4), (encodings.INT8, 1)):
        copies = max(2, int(_STREAMED_BYTES * scale**2) // (size * large[0] * large[1]) // 4)
        found += [Case(kind, large, rows, copies=copies, streamed=True) for rows in (1, 3)]
        found += [
            Case(kind, (side(outputs), side(inputs)), rows)
            for outputs, inputs, rows in ((512, 512, 36), (1024, 1024, 16), (1024, 512, 36))
        ]
    for kind, block in ((encodings.CSR, 1), (encodings.BLOCK4, 4), (encodings.BLOCK16, 16)):
        for outputs, inputs, rows, kept in (
            (64, 64, 1, 0.1),
            (64, 64, 3, 0.3),
            (512, 512, 1, 0.1),
            (512, 512, 3, 0.05),
            (512, 512, 16, 0.2),
            (2048, 256, 1, 0.2),
            (2048, 256, 3, 0.05),
            (256, 2048, 1, 0.1),
            (256, 2048, 3, 0.05),
            (256, 2048, 16, 0.02),
            (8192, 512, 1, 0.1),
            (8192, 512, 3, 0.04),
            (4096, 1024, 1, 0.3),
            (4096, 1024, 3, 0.3),
        ):
            # Layers with long rows, or many rows at once, spend their time in other ways.
            most_weights = 16 << 20 if rows < 16 else 1 << 20
            copies = min(_SPARSE_OUTPUTS // outputs, most_weights // (outputs * inputs))
            orders = [one_operator.AS_GIVEN]
            if rows < 16 and outputs > 64:
                orders.append(one_operator.ORDERED)
            if kind == encodings.BLOCK16 and outputs >= 2048:
                orders.append(one_operator.RESTORED)
            shape = (side(outputs), side(inputs))
            found += [
                Case(kind, shape, rows, kept, block, max(1, int(scale * copies)), order=order)
                for order in orders
            ]
    shapes = {
        "convolution": ((1, 256, 14), (3, 32, 28), (1, 512, 7)),
        "depthwise": ((3, 256, 14), (3, 512, 7)),
    }
    for kind in ("convolution", "convolution int8", "depthwise", "depthwise int8"):
        found += [Case(kind, (k, side(channels), size)) for k, channels, size in shapes[kind.split()[0]]]
    return found


def calibrate(measured: list[Case] | None = None, *, seconds: float = 30.0) -> Calibration:
    """Times layers with random weights on one thread and fits the constants of the cost model to the times.

    The files take turns. The fastest run of each counts, because other programs only ever add time.

    Args:
        measured: the files; `cases()` by default.
        seconds: for the timing, in addition to the time for building the files. Every file has at least
            three turns.

    Examples:
        >>> calibrate(seconds=20).costs.csr
        0.65...
    """
    from tqdm import tqdm

    measured = cases() if measured is None else measured
    rng = np.random.default_rng(_SEED)
    options = {"leave": False, "disable": None}  # shown on terminals only
    built = [_build(case, rng) for case in tqdm(measured, "building files", **options)]
    # The smallest file is timed both ways, too: its time is the overhead of a run.
    streamed = [case.streamed for case in measured] + [False, True]
    files = [*(one_operator.load(content) for content, _ in built), *2 * [one_operator.load_smallest()]]
    # XNNPACK's int8 kernel leaves the upper halves of AVX-512 registers in use, with which TFLite's kernels
    # take up to 3.5 times as long until a float kernel clears them. A file has float operations in between.
    clearing = one_operator.load_smallest()
    evicting = np.ones(_STREAMED_BYTES // 4 if any(streamed[:-1]) else 1, np.float32)

    seconds_of: list[list[float]] = [[] for _ in files]
    end, rounds = time.monotonic() + seconds, 0
    with tqdm(desc="timing", unit="round", **options) as bar:
        while rounds < 3 or time.monotonic() < end:
            for interpreter, cold, runs in zip(files, streamed, seconds_of, strict=True):
                clearing.invoke()
                for _ in range(1 if cold else _RUNS_PER_TURN):
                    if cold:
                        evicting += 1
                    runs.append(run_seconds(interpreter))
            rounds += 1
            bar.update()
    # The fastest of many cold runs found some of the weights in a cache, so a quantile counts.
    taken = [
        float(np.quantile(runs, 0.25)) if cold else min(runs)
        for cold, runs in zip(streamed, seconds_of, strict=True)
    ]
    overheads = {False: taken[-2], True: taken[-1]}
    timings = [
        Timing(case, stored, max(1.0, 1e9 * (run - overheads[case.streamed]) / case.copies))
        for case, (_, stored), run in zip(measured, built, taken, strict=False)
    ]
    return Calibration(*fit(timings), timings, rounds)


def fit(timings: list[Timing]) -> tuple[Costs, dict[str, tuple[float, float]]]:
    """The constants that fit best, and the errors, as in `Calibration`.

    Minimises the sum of the squared relative errors, with no constant below zero.

    Raises:
        InputError: no case depends on one of the constants.
    """
    names = [field.name for field in dataclasses.fields(Costs)]
    # The cost model is linear: the factor of a constant is its time if that constant is 1 and the others 0.
    units = [Costs(**{name: float(name == one) for name in names}) for one in names]
    factors = np.array([[each.case.ns(each.stored, unit) / each.ns for unit in units] for each in timings])
    missing = [name for name, used in zip(names, factors.T, strict=True) if not used.any()]
    if missing:
        raise InputError(f"no measured case depends on {', '.join(missing)}: measure all cases")
    solution = _non_negative(factors, np.ones(len(timings)))
    relative_errors = np.abs(factors @ solution - 1)
    kinds, errors = np.array([timing.case.kind for timing in timings]), {}
    for kind in dict.fromkeys(kinds.tolist()):
        of_kind = relative_errors[kinds == kind]
        errors[kind] = (float(np.median(of_kind)), float(of_kind.max()))
    return Costs(*map(float, solution)), errors


def run(path: Path | None) -> tuple[Path, Calibration]:
    """Calibrates and writes the file.

    Args:
        path: of the file; by default where `costs.choose` looks for it.

    Returns:
        The path and the calibration.

    Raises:
        InputError: the file cannot be written, which is checked before anything is measured.
    """
    target = path or costs.default_path()
    trial = target.with_name(f".{target.name}.try")
    Costs().save(trial)
    trial.unlink()
    calibration = calibrate()
    calibration.save(target)
    return target, calibration


def print_table(calibration: Calibration, path: Path) -> None:
    """Prints the constants next to the shipped ones, and the errors of the fit."""
    from rich.console import Console

    shipped = Costs()
    title = "nanoseconds on one core of this machine"
    table = new_table(title, "constant", ">shipped", ">measured", ">ratio")
    for field in dataclasses.fields(Costs):
        before, now = getattr(shipped, field.name), getattr(calibration.costs, field.name)
        table.add_row(field.name, f"{before:.3g}", f"{now:.3g}", f"{now / before:.2f}x" if before else "")
    errors = new_table("relative error of the fit", "kernel", ">files", ">median", ">largest")
    for kind, (median, largest) in calibration.errors.items():
        count = sum(timing.case.kind == kind for timing in calibration.timings)
        errors.add_row(kind, str(count), f"{median:.0%}", f"{largest:.0%}")
    console = Console()
    console.print(table, errors, sep="\n")
    console.print(f"{calibration.rounds} rounds; written to {path}", soft_wrap=True)


def _non_negative(matrix: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Least squares without negative unknowns: the most negative one becomes zero until there is none."""
    # Unknowns differ by orders of magnitude; in these units they are comparable.
    units = np.linalg.norm(matrix, axis=0)
    solution, used = np.zeros(matrix.shape[1]), np.ones(matrix.shape[1], bool)
    while used.any():
        part = np.linalg.lstsq(matrix[:, used] / units[used], target, rcond=None)[0]
        if (part >= 0).all():
            solution[used] = part / units[used]
            break
        used[np.flatnonzero(used)[part.argmin()]] = False
    return solution


def _build(case: Case, rng: np.random.Generator) -> tuple[bytes, float]:
    """The file, and the stored weights, or multiplications, of one of its operations."""
    kind, _, int8 = case.kind.partition(" ")
    if kind in ("convolution", "depthwise"):
        k, channels, size = case.shape
        shape = (1 if kind == "depthwise" else channels, k, k, channels)
        filters = rng.standard_normal(shape, np.float32)
        content = one_operator.convolution(filters, size, depthwise=kind == "depthwise", int8=bool(int8))
        return content, filters.size * size * size
    outputs, inputs = case.shape
    matrices = [
        one_operator.sparse_matrix(rng, outputs, inputs, case.kept, case.block) for _ in range(case.copies)
    ]
    content = one_operator.fully_connected(matrices, case.kind, case.rows, case.order)
    return content, sum(np.count_nonzero(matrix) for matrix in matrices) / case.copies
