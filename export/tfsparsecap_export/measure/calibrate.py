"""What kernels cost on this machine, measured: `python -m tfsparsecap_export.benchmark --calibrate`."""

import dataclasses
import platform
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tfsparsecap.errors import InputError
from tfsparsecap_export.encode import costs, sparse
from tfsparsecap_export.encode.costs import Costs
from tfsparsecap_export.measure import one_operator

#: Weights of a file whose time is that of reading them from memory; more than caches hold.
_STREAMED_BYTES = 64 << 20
#: Rows of all matrices in a file of sparse layers: a processor learns by heart how many weights there are in
#: each of a few thousand rows, which in a model it cannot.
_SPARSE_ROWS = 32768
#: Runs of a file in a turn: the first finds its weights where the others of the turn have pushed them.
_RUNS_A_TURN = 4
_SEED = 0


@dataclasses.dataclass(frozen=True)
class Case:
    """A file to time, and which constants its time is made of.

    Attributes:
        kind: what is measured: an encoding's name, or "convolution", "depthwise", each also with " int8".
        shape: outputs and inputs of a fully connected layer; side of the filter, channels and side of the
            picture of a convolution.
        rows: rows of the input.
        kept: share of the weights that are not zero, in blocks of `block`.
        block: neighbouring weights that are kept or zeroed together.
        copies: operations in the file, each with weights of its own.
        order: what is done about the order of the outputs, as in `one_operator`.
        streamed: whether the weights are to come from memory.
    """

    kind: str
    shape: tuple[int, ...]
    rows: int = 1
    kept: float = 1.0
    block: int = 1
    copies: int = 1
    streamed: bool = False
    order: str = one_operator.AS_GIVEN


@dataclasses.dataclass(frozen=True)
class Timing:
    """A case, the weights or multiplications in one of its operations, and nanoseconds of one of those."""

    case: Case
    stored: float
    ns: float


@dataclasses.dataclass(frozen=True)
class Calibration:
    """What was measured.

    Attributes:
        costs: the constants that fit best.
        errors: kind of case -> how far the fit is off, in half of the cases at most, and in all; as shares
            of the measured time.
        timings: what the fit is of.
        rounds: how often every file was run in turn.
    """

    costs: Costs
    errors: dict[str, tuple[float, float]]
    timings: list[Timing]
    rounds: int


def cases(scale: float = 1.0) -> list[Case]:
    """The files to time.

    Args:
        scale: what sides of layers are multiplied by; tests take tiny ones.
    """

    def side(size):
        return max(32, int(size * scale) // 16 * 16)

    found = []
    big = (side(1024), side(2048))
    for kind, size in ((sparse.DENSE, 4), (sparse.INT8, 1)):
        copies = max(2, int(_STREAMED_BYTES * scale**2) // (size * big[0] * big[1]) // 4)
        found += [Case(kind, big, rows, copies=copies, streamed=True) for rows in (1, 3)]
        found += [
            Case(kind, (side(outputs), side(inputs)), rows)
            for outputs, inputs, rows in ((512, 512, 36), (1024, 1024, 16), (1024, 512, 36))
        ]
    for kind, block in ((sparse.CSR, 1), (sparse.BLOCK4, 4), (sparse.BLOCK16, 16)):
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
            # Long rows and many rows at once take their time in other ways.
            most_weights = 16 << 20 if rows < 16 else 1 << 20
            copies = max(1, int(scale * min(_SPARSE_ROWS // outputs, most_weights // (outputs * inputs))))
            orders = [one_operator.AS_GIVEN]
            if rows < 16 and outputs > 64:
                orders.append(one_operator.ORDERED)
            if kind == sparse.BLOCK16 and outputs >= 2048:
                orders.append(one_operator.RESTORED)
            found += [
                Case(kind, (side(outputs), side(inputs)), rows, kept, block, copies, order=order)
                for order in orders
            ]
    shapes = {
        "convolution": ((1, 256, 14), (3, 32, 28), (1, 512, 7)),
        "depthwise": ((3, 256, 14), (3, 512, 7)),
    }
    for kind in ("convolution", "convolution int8", "depthwise", "depthwise int8"):
        found += [Case(kind, (k, side(channels), size)) for k, channels, size in shapes[kind.split()[0]]]
    return found


def calibrate(
    measured: list[Case] | None = None,
    *,
    seconds: float = 30.0,
    progress: Callable[[float, str], None] = lambda done, what: None,
) -> Calibration:
    """Times layers of made-up weights on one thread and fits the constants of the cost model to them.

    The files take turns; of each the fastest run counts, for all that other programs do only ever adds to
    the time.

    Args:
        measured: the files; `cases()` by default.
        seconds: for the timing; building the files takes some more. Every file has three turns at least.
        progress: is told the share that is done, and of what.

    Example:
        >>> calibrate(seconds=20).costs.csr
        0.65...
    """
    measured = cases() if measured is None else measured
    rng = np.random.default_rng(_SEED)
    loaded = []
    for number, case in enumerate(measured):
        progress(number / len(measured), "building files")
        content, stored = _build(case, rng)
        loaded.append((_load(content, rng), stored))
    empty = _load(one_operator.fully_connected([np.ones((4, 4), np.float32)], sparse.DENSE, 1), rng)
    pushed_out = np.ones(_STREAMED_BYTES // 4 if any(case.streamed for case in measured) else 1, np.float32)

    fastest, cold = [np.inf] * len(measured), [[] for _ in measured]
    overhead, cold_overhead = np.inf, []
    began, rounds = time.monotonic(), 0
    while rounds < 3 or time.monotonic() - began < seconds:
        progress(min(1.0, (time.monotonic() - began) / seconds if seconds else 1.0), "timing")
        pushed_out += 1
        cold_overhead.append(_run(empty))
        overhead = min([overhead, *(_run(empty) for _ in range(_RUNS_A_TURN))])
        for number, (case, (interpreter, _)) in enumerate(zip(measured, loaded, strict=True)):
            if case.streamed:
                pushed_out += 1
                cold[number].append(_run(interpreter))
            else:
                fastest[number] = min(fastest[number], *(_run(interpreter) for _ in range(_RUNS_A_TURN)))
        rounds += 1
    timings = []
    for case, (_, stored), warm, runs in zip(measured, loaded, fastest, cold, strict=True):
        # Memory is never quite idle: the fastest of many cold runs found some of the weights in a cache.
        ns = float(np.quantile(runs, 0.25) - np.median(cold_overhead)) if case.streamed else warm - overhead
        timings.append(Timing(case, stored, max(1.0, 1e9 * ns / case.copies)))
    return Calibration(*fit(timings), timings, rounds)


def fit(timings: list[Timing]) -> tuple[Costs, dict[str, tuple[float, float]]]:
    """The constants that fit best, and how far they are off, as `Calibration` holds them.

    The sum of the squares of the relative errors is as small as it can be with no constant below zero.

    Raises:
        InputError: a constant has no case that tells it.
    """
    names = [field.name for field in dataclasses.fields(Costs)]
    rows = np.zeros((len(timings), len(names)))
    for row, timing in zip(rows, timings, strict=True):
        for name, count in _parts(timing).items():
            row[names.index(name)] = count / timing.ns
    told = rows.any(axis=0)
    if not told.all():
        missing = ", ".join(name for name, there in zip(names, told, strict=True) if not there)
        raise InputError(f"nothing was measured that tells {missing}: measure all cases")
    solution = _non_negative(rows, np.ones(len(timings)))
    off = np.abs(rows @ solution - 1)
    kinds = [timing.case.kind for timing in timings]
    errors = {}
    for kind in dict.fromkeys(kinds):
        of_kind = off[[one == kind for one in kinds]]
        errors[kind] = (float(np.median(of_kind)), float(of_kind.max()))
    return Costs(**dict(zip(names, map(float, solution), strict=True))), errors


def save(calibration: Calibration, path: Path) -> None:
    """Writes the constants, how well they fit, and where and when they were measured.

    Raises:
        InputError: the file cannot be written.
    """
    calibration.costs.save(
        path,
        relative_errors={kind: list(error) for kind, error in calibration.errors.items()},
        rounds=calibration.rounds,
        runtime=_runtime_version(),
        processor=platform.machine(),
        measured=time.strftime("%Y-%m-%d"),
    )


def print_table(calibration: Calibration, path: Path) -> None:
    """Shows the constants beside those in use so far, and the errors of the fit."""
    from rich.console import Console
    from rich.table import Table

    shipped = Costs()
    table = Table(title="nanoseconds on one core of this machine", title_justify="left")
    table.add_column("constant")
    for name in ("shipped", "measured", "ratio"):
        table.add_column(name, justify="right")
    for field in dataclasses.fields(Costs):
        before, now = getattr(shipped, field.name), getattr(calibration.costs, field.name)
        table.add_row(field.name, f"{before:.3g}", f"{now:.3g}", f"{now / before:.2f}x" if before else "")
    errors = Table(title="how far the fit is off", title_justify="left")
    errors.add_column("kernel")
    for name in ("files", "half within", "all within"):
        errors.add_column(name, justify="right")
    for kind, (half, most) in calibration.errors.items():
        count = sum(timing.case.kind == kind for timing in calibration.timings)
        errors.add_row(kind, str(count), f"{half:.0%}", f"{most:.0%}")
    console = Console()
    console.print(table, errors, sep="\n")
    console.print(f"{calibration.rounds} rounds; written to {path}", soft_wrap=True)


def _parts(timing: Timing) -> dict[str, float]:
    """Name of a constant -> how often it is in a time; the inverse of what `Costs` computes."""
    case, stored = timing.case, timing.stored
    kind, _, int8 = case.kind.partition(" ")
    if kind in ("convolution", "depthwise"):
        return {f"{kind}_int8" if int8 else kind: stored}
    outputs, inputs = case.shape
    name = {sparse.CSR: "csr", sparse.BLOCK4: "block4", sparse.BLOCK16: "block16", sparse.INT8: "int8"}.get(
        case.kind, "dense"
    )
    if name in ("dense", "int8"):
        each_row = {f"{name}_row": stored * case.rows}
        return each_row | {name: stored} if case.streamed else each_row
    parts = {name: stored * case.rows, f"{name}_once": stored, "output_once": outputs}
    if case.order == one_operator.AS_GIVEN:
        parts["guess"] = outputs * case.rows
    elif case.order == one_operator.RESTORED:
        parts |= {"restore": outputs, "restore_row": outputs * case.rows}
    if name in ("block4", "block16"):
        parts["output"] = outputs * case.rows
    if name == "block16":
        parts["quantize"] = inputs * case.rows
    return parts


def _non_negative(matrix: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Least squares with no negative unknown: those that come out negative are zero, one after another."""
    # Unknowns differ by orders of magnitude; in these units the most negative one is so by its effect.
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
    """The file, and the weights stored in, or multiplications of, one of its operations."""
    kind, _, int8 = case.kind.partition(" ")
    if kind in ("convolution", "depthwise"):
        k, channels, size = case.shape
        shape = (1 if kind == "depthwise" else channels, k, k, channels)
        filters = rng.standard_normal(shape, np.float32)
        content = one_operator.convolutions([filters], size, depthwise=kind == "depthwise", int8=bool(int8))
        return content, filters.size * size * size
    matrices = [
        one_operator.sparse_matrix(rng, *case.shape, case.kept, case.block) for _ in range(case.copies)
    ]
    content = one_operator.fully_connected(matrices, case.kind, case.rows, case.order)
    return content, sum(np.count_nonzero(matrix) for matrix in matrices) / case.copies


def _load(content: bytes, rng: np.random.Generator):
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=content, num_threads=1)
    interpreter.allocate_tensors()
    (given,) = interpreter.get_input_details()
    interpreter.set_tensor(given["index"], rng.standard_normal(given["shape"], np.float32))
    interpreter.invoke()
    return interpreter


def _run(interpreter) -> float:
    """Seconds of a run."""
    start = time.perf_counter()
    interpreter.invoke()
    return time.perf_counter() - start


def _runtime_version() -> str:
    from importlib.metadata import version

    return f"ai-edge-litert {version('ai-edge-litert')}"


def run(path: Path | None) -> tuple[Path, Calibration]:
    """Calibrates with a progress bar and writes the file.

    Args:
        path: where the constants go; by default where `costs.current` looks for them.

    Returns:
        The file, and what was measured.

    Raises:
        InputError: the file cannot be written; that is tried before anything is measured.
    """
    from tqdm import tqdm

    target = path or costs.default_path()
    # Whatever is in the way is found before the minute of measuring.
    Costs().save(target.with_name(f".{target.name}.try"))
    target.with_name(f".{target.name}.try").unlink()
    with tqdm(
        total=100, unit="%", bar_format="{desc:16}{bar}{percentage:4.0f} %", leave=False, disable=None
    ) as bar:

        def show(done, what):
            bar.set_description_str(what, refresh=False)
            bar.n = round(100 * done)
            bar.refresh()

        calibration = calibrate(progress=show)
    save(calibration, target)
    return target, calibration
