"""Timing of .tflite files that take turns on the same inputs."""

import dataclasses
import statistics
import time
from pathlib import Path

import numpy as np

from tfsparsecap.errors import InputError
from tfsparsecap.inference.bundle import read_bundle
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.flatbuffer.model_file import schema
from tfsparsecap_export.verify.probe import Sample, probe

Inputs = dict[str, tuple[tuple[int, ...], str]]

#: The output that makes a file a captioner's; docs/export.md, "A captioner's file".
CAPTIONS = "token_ids"
_TYPES = {value: name.lower() for name, value in vars(schema.TensorType).items() if isinstance(value, int)}
_PROBED = 2


@dataclasses.dataclass(frozen=True)
class Measurement:
    """One file's figures.

    Attributes:
        path: the file.
        bytes: its size.
        ms: median milliseconds of a run.
        fastest_ms, slowest_ms: of all runs.
        speedup: the first file's `ms` divided by this one's.
        size_ratio: the first file's `bytes` divided by this one's.
        words: mean number of steps that the beam search took, or None for a file that gives no captions.
        ms_a_word: median of the runs' milliseconds divided by their steps, or None.
        peak_bytes: how far a process grows that loads and runs it; see `probe.Probe`.
        load_ms: milliseconds of loading it.
        inputs: on how many inputs it was run.
        same_captions: on how many of them its best caption is the first file's, token by token, or None.
        difference: largest difference of its outputs to the first file's, divided by the largest of those;
            None for captions.
    """

    path: str
    bytes: int
    ms: float
    fastest_ms: float
    slowest_ms: float
    speedup: float
    size_ratio: float
    words: float | None
    ms_a_word: float | None
    peak_bytes: int | None
    load_ms: float
    inputs: int
    same_captions: int | None
    difference: float | None


def measure(
    paths: list[Path], samples: list[Sample], *, threads: int = 1, runs: int = 30
) -> list[Measurement]:
    """Times .tflite files in turns on the same inputs.

    Each is loaded and run in a process of its own first, for the memory that takes.

    Args:
        paths: the files, the one to compare with first. Each has one signature; all take the same inputs.
        samples: what they are run on, in turn; `samples` gives some.
        threads: CPU threads that the runtime may use.
        runs: runs of each file that count; one on each sample before them does not.

    Raises:
        InputError: a file cannot be read, files take different inputs, or a number is below 1.

    Example:
        >>> paths = [Path("dense.tflite"), Path("sparse.tflite")]
        >>> dense, sparse = measure(paths, samples(paths), runs=10)
        >>> sparse.speedup
        4.2
    """
    from tqdm import tqdm

    if threads < 1 or runs < 1:
        raise InputError(f"threads is {threads} and runs {runs}: both must be at least 1")
    same_inputs(paths)
    rounds = [*range(-len(samples), runs)]
    with tqdm(total=len(paths) + len(rounds), unit="turn", leave=False, disable=None) as bar:
        probes, runners = [], []
        for path in paths:
            bar.set_description(f"loading {path.name}")
            probes.append(probe(path, samples[:_PROBED], threads))
            runners.append(_load(path, threads))
            bar.update()
        bar.set_description("timing")
        ends = [_end_id(path) for path in paths]
        said: list[list[Sample]] = [[] for _ in paths]
        times: list[list[float]] = [[] for _ in paths]
        words: list[list[int]] = [[] for _ in paths]
        for number in rounds:
            sample = samples[number % len(samples)]
            for turn in range(len(paths)):
                # Each file follows each other as often, for what that leaves in the caches.
                file = (turn + number) % len(paths)
                start = time.perf_counter()
                outputs = runners[file](**sample)
                elapsed = time.perf_counter() - start
                if number < 0:
                    said[file].append(outputs)
                    continue
                times[file].append(1e3 * elapsed)
                if CAPTIONS in outputs:
                    words[file].append(_steps(outputs[CAPTIONS], ends[file]))
            bar.update()
    sizes, medians = [path.stat().st_size for path in paths], [statistics.median(ms) for ms in times]
    return [
        Measurement(
            path=str(path),
            bytes=sizes[file],
            ms=medians[file],
            fastest_ms=min(times[file]),
            slowest_ms=max(times[file]),
            speedup=medians[0] / medians[file],
            size_ratio=sizes[0] / sizes[file],
            words=statistics.mean(words[file]) if words[file] else None,
            ms_a_word=_ms_a_word(times[file], words[file]),
            inputs=len(samples),
            **dataclasses.asdict(probes[file]),
            **_compared(said[file], said[0]),
        )
        for file, path in enumerate(paths)
    ]


def samples(paths: list[Path], *, images: list[Path] | None = None, count: int = 16) -> list[Sample]:
    """Inputs that all files take.

    Args:
        paths: the files.
        images: pictures; made-up inputs by default.
        count: how many to make up.

    Raises:
        InputError: a file cannot be read, files take different inputs, or no picture.
    """
    import tensorflow as tf

    from tfsparsecap.data.images import read_image
    from tfsparsecap_export.samples import synthetic_samples

    if count < 1:
        raise InputError(f"{count} inputs to make up: at least 1 is needed")
    inputs = same_inputs(paths)
    if images:
        shape = inputs.get("image", ((), ""))[0]
        if len(shape) != 4:
            raise InputError(f"{paths[0]} takes {_shown(inputs)}, no image: leave --images out")
        return [{"image": read_image(path, shape[1])[None]} for path in images]
    specs = {name: tf.TensorSpec(shape, dtype) for name, (shape, dtype) in inputs.items()}
    return synthetic_samples(specs, count)


def same_inputs(paths: list[Path]) -> Inputs:
    """Names, shapes and types of the inputs of files, read without running them.

    Raises:
        InputError: a file cannot be read or has several signatures, or the files take different inputs.
    """
    every = [_inputs(path) for path in paths]
    for path, inputs in zip(paths, every, strict=True):
        if inputs != every[0]:
            raise InputError(
                f"{path} takes {_shown(inputs)}, {paths[0]} takes {_shown(every[0])}:"
                " compare files with the same inputs"
            )
    return every[0]


def _inputs(path: Path) -> Inputs:
    model = flatfile.read_model(flatfile.map_file(path), str(path))
    signatures = model.signatureDefs or []
    if len(signatures) != 1:
        raise InputError(
            f"{path} has {len(signatures)} signatures: give files with one, as tfsparsecap-export writes"
        )
    (signature,) = signatures
    tensors = model.subgraphs[signature.subgraphIndex].tensors
    found = {}
    for entry in signature.inputs or []:
        tensor = tensors[entry.tensorIndex]
        shape = () if tensor.shape is None else tuple(int(size) for size in tensor.shape)
        found[entry.name.decode(errors="replace")] = (shape, _TYPES.get(tensor.type, "unknown"))
    return dict(sorted(found.items()))


def _load(path: Path, threads: int):
    """The file's signature as a function; `probe` has seen that it loads."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(path), num_threads=threads)
    return interpreter.get_signature_runner(next(iter(interpreter.get_signature_list())))


def _end_id(path: Path) -> int | None:
    """The id of a captioner's end token, where the file says it."""
    try:
        return int(read_bundle(path)[0]["special_ids"]["end"])
    except (InputError, KeyError, TypeError, ValueError):
        return None


def _steps(token_ids: np.ndarray, end: int | None) -> int:
    """Steps that a search took, until its longest beam ended.

    Args:
        token_ids: [beam, T], padding after the end token.
        end: the end token, or None where that is unknown, and what is no padding is counted.
    """
    longest = 0
    for row in token_ids:
        ends = np.flatnonzero(row == end) if end is not None else np.flatnonzero(row)[-1:]
        # A row of padding only is a beam that found no caption.
        longest = max(longest, int(ends[0]) + 1 if len(ends) else len(row) if row.any() else 0)
    return longest


def _ms_a_word(ms: list[float], words: list[int]) -> float | None:
    if not words:
        return None
    return statistics.median(each / max(1, count) for each, count in zip(ms, words, strict=True))


def _compared(outputs: list[Sample], first: list[Sample]) -> dict[str, int | float | None]:
    """`same_captions` and `difference`."""
    if all(CAPTIONS in each for each in (*outputs, *first)):
        pairs = zip(outputs, first, strict=True)
        same = sum(np.array_equal(_best(mine), _best(theirs)) for mine, theirs in pairs)
        return {"same_captions": same, "difference": None}
    difference, largest = 0.0, 0.0
    for mine, theirs in zip(outputs, first, strict=True):
        for name in theirs:
            if name not in mine or mine[name].shape != theirs[name].shape:
                return {"same_captions": None, "difference": float("inf")}
            values = theirs[name].astype(np.float64)
            difference = max(difference, float(np.abs(mine[name] - values).max(initial=0)))
            largest = max(largest, float(np.abs(values).max(initial=0)))
    return {"same_captions": None, "difference": difference / largest if largest else difference}


def _best(outputs: Sample) -> list[int]:
    """The best caption, as far as it goes: files may differ in how long captions may be."""
    ids = outputs[CAPTIONS][0]
    return ids[: int(np.flatnonzero(ids)[-1]) + 1 if ids.any() else 0].tolist()


def _shown(inputs: Inputs) -> str:
    return " and ".join(f"{name} {dtype} {list(shape)}" for name, (shape, dtype) in inputs.items())
