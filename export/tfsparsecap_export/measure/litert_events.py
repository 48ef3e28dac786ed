"""What LiteRT's own profiler says of a file's operations, event by event.

The Python interpreter of the LiteRT wheel has no profiler. The C library beside it has one, so this runs the
file there, on the same kernels, in a process of its own: another version of the library may have another
layout of its events.

python -m tfsparsecap_export.measure.litert_events FILE INPUTS.npz THREADS RUNS     (started by `profiling`)
"""

import ctypes
import json
import sys
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint64, c_void_p
from pathlib import Path

import numpy as np

from tfsparsecap_export.verify.probe import Sample, answer, read_samples

_CPU, _WRITE = 1, 1
# Room for the library's description of a tensor's type, which is only handed from one call to the next.
_TENSOR_TYPE_BYTES = 512


class Event(ctypes.Structure):
    """`ProfiledEventData` of LiteRT's C interface (litert_profiler_event.h)."""

    _fields_ = (
        ("tag", c_char_p),
        ("type", c_int),
        ("start_us", c_uint64),
        ("elapsed_us", c_uint64),
        ("memory_before", c_uint64 * 3),
        ("memory_after", c_uint64 * 3),
        ("index", c_uint64),
        ("graph", c_uint64),
        ("source", c_int),
    )


class ProfiledModel:
    """A .tflite file on LiteRT's C library, with its profiler on.

    Args:
        path: the file.
        threads: CPU threads that kernels may use.

    Raises:
        RuntimeError: the library refuses the file.
        AttributeError: the library has no such profiler.
    """

    def __init__(self, path: str, threads: int):
        import ai_edge_litert

        libraries = list(Path(ai_edge_litert.__file__).parent.glob("libLiteRt.*"))
        if not libraries:
            raise AttributeError("the wheel has no libLiteRt")
        self._library = ctypes.CDLL(str(libraries[0]))
        self._environment = self._made("LiteRtCreateEnvironment", 0, None)
        self._model = self._made("LiteRtCreateModelFromFile", self._environment, c_char_p(path.encode()))
        options = self._made("LiteRtCreateOptions")
        self._call("LiteRtSetOptionsHardwareAccelerators", options, _CPU)
        self._option(options, b"runtime_options_string", b"enable_profiling = true\n")
        self._option(options, b"xnnpack", f"num_threads = {threads}\n".encode())
        self._compiled = self._made("LiteRtCreateCompiledModel", self._environment, self._model, options)
        self._profiler = self._made("LiteRtCompiledModelGetProfiler", self._compiled)
        self._signature = self._made("LiteRtGetModelSignature", self._model, c_size_t(0))
        self._inputs, self._outputs = self._buffers("Input"), self._buffers("Output")

    def run(self, sample: Sample) -> list[tuple]:
        """Runs once and gives the events: tag, type, microseconds at the start, microseconds taken, index of
        the operation, index of its subgraph."""
        for name, buffer in zip(self._names(), self._inputs, strict=True):
            values = np.ascontiguousarray(sample[name])
            address = c_void_p()
            self._call("LiteRtLockTensorBuffer", c_void_p(buffer), byref(address), _WRITE)
            ctypes.memmove(address, values.ctypes.data, values.nbytes)
            self._call("LiteRtUnlockTensorBuffer", c_void_p(buffer))
        self._call("LiteRtResetProfiler", self._profiler)
        self._call("LiteRtStartProfiler", self._profiler)
        self._call(
            "LiteRtRunCompiledModel",
            self._compiled,
            c_size_t(0),
            c_size_t(len(self._inputs)),
            self._inputs,
            c_size_t(len(self._outputs)),
            self._outputs,
        )
        self._call("LiteRtStopProfiler", self._profiler)
        count = c_int()
        self._call("LiteRtGetNumProfilerEvents", self._profiler, byref(count))
        events = (Event * max(1, count.value))()
        if count.value:
            self._call("LiteRtGetProfilerEvents", self._profiler, count, events)
        return [
            (event.tag.decode(), event.type, event.start_us, event.elapsed_us, event.index, event.graph)
            for event in events[: count.value]
        ]

    def _call(self, name: str, *arguments) -> None:
        function = getattr(self._library, name)
        function.restype = c_int
        status = function(*arguments)
        if status:
            raise RuntimeError(f"{name} gives status {status}")

    def _made(self, name: str, *arguments) -> c_void_p:
        """The handle that a function gives through its last argument."""
        handle = c_void_p()
        self._call(name, *arguments, byref(handle))
        return handle

    def _option(self, options: c_void_p, name: bytes, value: bytes) -> None:
        """Adds an option, which LiteRT reads from text and frees itself."""
        c = ctypes.CDLL(None)
        c.strdup.restype, c.strdup.argtypes = c_void_p, (c_char_p,)
        made = self._made(
            "LiteRtCreateOpaqueOptions",
            c_char_p(name),
            c_void_p(c.strdup(value)),
            ctypes.cast(c.free, c_void_p),
        )
        self._call("LiteRtAddOpaqueOptions", options, made)

    def _buffers(self, kind: str):
        count = c_size_t()
        self._call(f"LiteRtGetNumSignature{kind}s", self._signature, byref(count))
        buffers = (c_void_p * count.value)()
        for index in range(count.value):
            tensor = self._made(f"LiteRtGetSignature{kind}TensorByIndex", self._signature, c_size_t(index))
            tensor_type = ctypes.create_string_buffer(_TENSOR_TYPE_BYTES)
            self._call("LiteRtGetRankedTensorType", tensor, tensor_type)
            wanted = self._made(
                f"LiteRtGetCompiledModel{kind}BufferRequirements",
                self._compiled,
                c_size_t(0),
                c_size_t(index),
            )
            made = self._made(
                "LiteRtCreateManagedTensorBufferFromRequirements", self._environment, tensor_type, wanted
            )
            buffers[index] = made.value
        return buffers

    def _names(self) -> list[str]:
        names = []
        for index in range(len(self._inputs)):
            name = c_char_p()
            self._call("LiteRtGetSignatureInputName", self._signature, c_size_t(index), byref(name))
            names.append(name.value.decode())
        return names


def main(path: str, inputs: str, threads: str, runs: str) -> int:
    """Prints the events of each run, or what went wrong."""
    samples = read_samples(inputs)
    doing = "load"
    try:
        model = ProfiledModel(path, int(threads))
        doing = "profile"
        for sample in samples[:2]:
            model.run(sample)
        events = [model.run(samples[number % len(samples)]) for number in range(int(runs))]
    except (RuntimeError, AttributeError) as error:
        return answer(doing, error)
    json.dump(events, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
