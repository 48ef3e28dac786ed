"""Timing of .tflite files that take turns on the same inputs."""

import contextlib
import dataclasses
import platform
import statistics
import time
from pathlib import Path
from typing import Literal

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from tfsparsecap.captioning.data.images import read_image
from tfsparsecap.captioning.data.records import images_in
from tfsparsecap.captioning.inference.bundle import check_trust, read_bundle
from tfsparsecap.errors import InputError, check_whole, first_line
from tfsparsecap_export.encode.costs import TARGETS
from tfsparsecap_export.encode.network_cost import STEPS, network_ms
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.flatbuffer.contents import read_signatures
from tfsparsecap_export.samples import Sample, synthetic_samples
from tfsparsecap_export.verify.probe import probe

#: Name of an input -> its shape and type.
Inputs = dict[str, tuple[tuple[int, ...], str]]

#: The output that captioners have; docs/bundle.md.
CAPTIONS = "token_ids"


@dataclasses.dataclass(frozen=True)
class Measurement:
    """The figures of one file.

    Attributes:
        path: the file.
        bytes: its size.
        ms: median milliseconds of a run.
        fastest_ms, slowest_ms: of all runs.
        speedup: the first file's `ms` divided by this one's.
        expected: what the cost model expects `speedup` to be on this processor; None if it has no costs.
        size_ratio: the first file's `bytes` divided by this one's.
        words: mean number of steps of the beam search; None for a file that gives no captions.
        ms_a_word: median over the runs of milliseconds divided by steps, or None.
        peak_bytes: growth of a process that loads and runs the file; see `probe.Probe`.
        load_ms: milliseconds of loading it.
        inputs: number of inputs.
        same_captions: number of inputs whose best caption is the first file's, token by token, or None.
        difference: largest difference from the first file's outputs, relative to the largest output; NaN if
            an output is NaN, None for captions.
    """

    path: str
    bytes: int
    ms: float
    fastest_ms: float
    slowest_ms: float
    speedup: float
    expected: float | None
    size_ratio: float
    words: float | None
    ms_a_word: float | None
    peak_bytes: int | None
    load_ms: float
    inputs: int
    same_captions: int | None
    difference: float | None


def measure(
    paths: list[Path], samples: list[Sample], *, threads: int = 1, runs: int = 30, trust: bool = False
) -> list[Measurement]:
    """Times .tflite files in turns on the same inputs.

    Each file is first loaded and run in a separate process, to measure memory.

    Args:
        paths: the files, the reference first. Each has one signature; all have the same inputs, see
            `same_inputs`.
        samples: the inputs of the runs, in turn; see `samples`.
        threads: CPU threads that the runtime may use.
        runs: timed runs of each file, after one run on each sample that is not timed.
        trust: run files without a digest, too: those of other models than captioners, and of other programs.
            The runtime is no sandbox.

    Raises:
        InputError: a file cannot be read, was changed after its export, or has no digest and is not trusted,
            files have different inputs, or a number is below 1.

    Examples:
        >>> from tfsparsecap.captioning.captioners import captioner_path
        >>> path = captioner_path("small")
        >>> reference, other = measure([path, path], samples([path]), runs=3)
        >>> reference.speedup
        1.0
    """
    threads = check_whole("threads", threads, at_least=1)
    runs = check_whole("runs", runs, at_least=1)
    inputs, outputs = same_inputs(paths), _values(paths[0], "outputs")
    for path in paths:
        check_trust(path, trust)
    rounds = range(-len(samples), runs)
    files: list[_File] = []
    with tqdm(total=len(paths) + len(rounds), unit="round", leave=False, disable=None) as bar:
        for path in paths:
            bar.set_description(f"loading {path.name}")
            files.append(_File(path, inputs, outputs, threads))
            bar.update()
        bar.set_description("timing")
        for number in rounds:
            for turn in range(len(files)):
                # Rotated, so that each file runs equally often after each other file.
                files[(turn + number) % len(files)].run(samples[number % len(samples)], timed=number >= 0)
            bar.update()
    expected = [file.expected_ms() for file in files]
    results: list[Measurement] = []
    for file, of_file in zip(files, expected, strict=True):
        size, ms, steps = file.path.stat().st_size, statistics.median(file.ms), file.steps
        reference = results[0] if results else None
        same_captions, difference = _comparison(file.outputs, files[0].outputs)
        ms_a_word = [run_ms / max(1, count) for run_ms, count in zip(file.ms, steps, strict=False)]
        results.append(
            Measurement(
                path=str(file.path),
                bytes=size,
                ms=ms,
                fastest_ms=min(file.ms),
                slowest_ms=max(file.ms),
                speedup=reference.ms / ms if reference else 1.0,
                expected=expected[0] / of_file if expected[0] and of_file else None,
                size_ratio=reference.bytes / size if reference else 1.0,
                words=statistics.mean(steps) if steps else None,
                ms_a_word=statistics.median(ms_a_word) if steps else None,
                peak_bytes=file.probe.peak_bytes,
                load_ms=file.probe.load_ms,
                inputs=len(samples),
                same_captions=same_captions,
                difference=difference,
            )
        )
    return results


class _File:
    """A file that is run in turns with others, and what its runs gave.

    Args:
        path: the file.
        inputs, outputs: of the first file, whose names samples and outputs have.
        threads: CPU threads that the runtime may use.

    Attributes:
        outputs: of the runs that are not timed.
        ms: milliseconds of each timed run.
        steps: of the search, in each timed run of a captioner.
    """

    def __init__(self, path: Path, inputs: Inputs, outputs: Inputs, threads: int) -> None:
        from ai_edge_litert.interpreter import Interpreter

        self.path, self.probe = path, probe(path, threads)
        interpreter = Interpreter(model_path=str(path), num_threads=threads)
        self._run = interpreter.get_signature_runner(next(iter(interpreter.get_signature_list())))
        self._inputs = _aligned(_values(path, "inputs"), inputs) or {}
        self._outputs = _aligned(_values(path, "outputs"), outputs) or {}
        self._end = None
        with contextlib.suppress(InputError, KeyError, TypeError):  # the id of a captioner's end token
            end = read_bundle(path)[0]["special_ids"]["end"]
            self._end = end if isinstance(end, int) else None
        self.outputs: list[Sample] = []
        self.ms: list[float] = []
        self.steps: list[int] = []

    def run(self, sample: Sample, *, timed: bool) -> None:
        """Runs the file; raises InputError if the runtime fails."""
        own = {name: sample[of_first] for name, of_first in self._inputs.items()}
        start = time.perf_counter()
        try:
            results = self._run(**own)
        except (ValueError, RuntimeError) as error:
            reason = first_line(error)
            raise InputError(f"the runtime cannot run {self.path} ({reason}): export it again") from error
        elapsed = time.perf_counter() - start
        outputs = {self._outputs.get(name, name): value for name, value in results.items()}
        if not timed:
            self.outputs.append(outputs)
            return
        self.ms.append(1e3 * elapsed)
        if CAPTIONS in outputs:
            self.steps.append(_steps(outputs[CAPTIONS], self._end))

    def expected_ms(self) -> float | None:
        """What the cost model expects on this processor; None if it has no costs."""
        names = {"aarch64": "arm64", "AMD64": "x86_64"}
        costs = TARGETS.get(names.get(platform.machine(), platform.machine()))
        steps = round(statistics.mean(self.steps)) if self.steps else STEPS
        return None if costs is None else max(1e-9, network_ms(flatfile.map_file(self.path), costs, steps))


def samples(paths: list[Path], *, images: list[Path] | None = None, count: int = 16) -> list[Sample]:
    """Inputs that all files accept.

    Args:
        paths: the files.
        images: image files, or folders, of which the first `count` images are taken; synthetic inputs by
            default.
        count: number of synthetic inputs.

    Raises:
        InputError: a file or an image cannot be read, or files have different inputs.
    """
    check_whole("the number of synthetic inputs", count, at_least=1)
    inputs = same_inputs(paths)
    if images:
        shape, dtype = inputs.get("image", ((), ""))
        if len(inputs) != 1 or dtype != "uint8" or shape != (1, *shape[1:2] * 2, 3):
            raise InputError(
                f"{paths[0]} has the inputs {_shown(inputs)}, not one square uint8 image: leave --images out"
            )
        files: list[Path] = []
        for path in images:
            image_files = images_in(path)[:count] if path.is_dir() else [path]
            if not image_files:
                raise InputError(
                    f"there are no images in the folder {path}: give a folder with images, or files"
                )
            files += image_files
        return [{"image": read_image(file, shape[1])[None]} for file in files]
    specs = {name: tf.TensorSpec(shape, dtype) for name, (shape, dtype) in inputs.items()}
    return synthetic_samples(specs, count)


def same_inputs(paths: list[Path]) -> Inputs:
    """The inputs of the first file, read without running it; an axis of any size counts as 1.

    All files must have the same ones, or, under other names, ones of the same shapes and types.

    Raises:
        InputError: a file cannot be read or has several signatures, or the files have different inputs.
    """
    first = _values(paths[0], "inputs")
    for path in paths[1:]:
        inputs = _values(path, "inputs")
        if _aligned(inputs, first) is None:
            raise InputError(
                f"{path} has the inputs {_shown(inputs)}, {paths[0]} has {_shown(first)}: compare files"
                " with the same inputs"
            )
    return first


def _values(path: Path, which: Literal["inputs", "outputs"]) -> Inputs:
    """The inputs or outputs of a file's signature, in the order of its graph."""
    model = flatfile.read_model(flatfile.map_file(path), str(path))
    count = len(model.signatureDefs or [])
    if count != 1:
        raise InputError(f"{path} has {count} signatures: give files with one, as tfsparsecap-export writes")
    definition, values = model.signatureDefs[0], getattr(read_signatures(model)[0], which)
    order = {
        int(index): place
        for place, index in enumerate(getattr(model.subgraphs[definition.subgraphIndex], which))
    }
    places = [order.get(entry.tensorIndex, len(order)) for entry in getattr(definition, which)]
    return {
        values[i].name: (tuple(1 if n < 0 else n for n in values[i].shape), values[i].dtype)
        for i in np.argsort(places, kind="stable")
    }


def _aligned(mine: Inputs, first: Inputs) -> dict[str, str] | None:
    """Name in `mine` -> name in `first`, or None if they do not agree.

    Under other names, a value is the first one left with the shape and type, in the order of the graphs.
    """
    if mine == first:
        return {name: name for name in mine}
    names: dict[str, str] = {}
    for first_name, kind in first.items():
        own_name = next((name for name in mine if name not in names and mine[name] == kind), None)
        if own_name is None:
            return None
        names[own_name] = first_name
    return names if len(names) == len(mine) else None


def _shown(inputs: Inputs) -> str:
    return " and ".join(f"{name} {dtype} {list(shape)}" for name, (shape, dtype) in inputs.items())


def _steps(token_ids: np.ndarray, end: int | None) -> int:
    """Steps of a search, until its longest beam ended.

    Args:
        token_ids: [beam, T], with padding (0) after the end token.
        end: the end token; if None, steps are counted up to the last token that is not padding.
    """
    longest = 0
    for row in token_ids:
        ends = np.flatnonzero(row == end) if end is not None else np.flatnonzero(row)[-1:]
        # A beam that found no caption is all padding.
        longest = max(longest, int(ends[0]) + 1 if len(ends) else len(row) if row.any() else 0)
    return longest


def _comparison(outputs: list[Sample], first: list[Sample]) -> tuple[int | None, float | None]:
    """`same_captions` and `difference`."""
    pairs = list(zip(outputs, first, strict=True))
    if all(CAPTIONS in result for result in (*outputs, *first)):
        return sum(np.array_equal(_best_caption(mine), _best_caption(other)) for mine, other in pairs), None
    difference, largest = 0.0, 0.0
    for mine, other in pairs:
        for name, expected in other.items():
            if name not in mine or mine[name].shape != expected.shape:
                return None, float("inf")
            values, expected_values = mine[name].astype(np.float64), expected.astype(np.float64)
            if np.isnan(values).any() or np.isnan(expected_values).any():
                return None, float("nan")
            different = values != expected_values  # infinite values may be equal
            errors = np.abs(values[different] - expected_values[different])
            difference = max(difference, float(errors.max(initial=0)))
            finite = np.isfinite(expected_values)
            largest = max(largest, float(np.abs(expected_values).max(initial=0, where=finite)))
    return None, difference / largest if largest else difference


def _best_caption(outputs: Sample) -> np.ndarray:
    """Without padding at the end: files may have different maximum lengths."""
    return np.trim_zeros(outputs[CAPTIONS][0], "b")
