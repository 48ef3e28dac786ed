"""Statistics of the inputs of each layer of a network on samples, for which its weights become int8."""

import collections
import dataclasses
import math
from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np

from tfsparsecap.core.array_files import spread
from tfsparsecap.core.hidden_stderr import hidden_stderr
from tfsparsecap_export.encode import sparse
from tfsparsecap_export.flatbuffer import model_file as flatfile
from tfsparsecap_export.flatbuffer.model_file import schema
from tfsparsecap_export.samples import Sample

#: Number of samples for calibration; an image has hundreds of inputs for most weights.
CALIBRATION_SAMPLES = 32
#: The operations that are layers.
LAYERS = ("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "FULLY_CONNECTED")
#: Layers with more inputs per output have no second moments: the time to use them grows with their cube.
MOST_INPUTS = 4608
#: Number of positions of the feature maps that are used for a layer: per input of the layer, and at least.
_POSITIONS_PER_INPUT, _LEAST_POSITIONS = 2, 4096
#: Bytes of inputs that are kept at the same time; a network with more runs several times.
_MOST_BYTES = 1 << 30


@dataclasses.dataclass(frozen=True)
class CalibratedLayer:
    """A convolution or dense layer of a graph with float32 weights.

    Attributes:
        name: name of the operation, such as `"CONV_2D"`.
        operator: the operation.
        weights: float32 in the layout of the operation.
        groups: number of parts of the inputs; the outputs are divided into as many, each of which depends on
            one part. 1 for a depthwise convolution too.
    """

    name: str
    operator: schema.OperatorT
    weights: np.ndarray
    groups: int = 1

    @property
    def role(self) -> str:
        """As `sparse.FileWeight.role`."""
        return sparse.FULLY_CONNECTED if self.name == "FULLY_CONNECTED" else sparse.CONVOLUTION

    @property
    def source(self) -> int:
        """Tensor of what the weights are multiplied by."""
        return int(self.operator.inputs[2 if self.name == "TRANSPOSE_CONV" else 0])

    @property
    def bias(self) -> int | None:
        """Position of the bias among the inputs of the operation, if there is one."""
        position = 3 if self.name == "TRANSPOSE_CONV" else 2
        has_bias = len(self.operator.inputs) > position and self.operator.inputs[position] >= 0
        return position if has_bias else None

    @property
    def channel_axis(self) -> int:
        """Axis of the outputs in the layout of the operation."""
        return self.weights.ndim - 1 if self.name == "DEPTHWISE_CONV_2D" else 0

    @property
    def matrix(self) -> np.ndarray:
        """The weights as [groups, outputs, inputs], see `round_weights`."""
        if self.name == "DEPTHWISE_CONV_2D":
            return self.weights.reshape(-1, self.weights.shape[-1]).T[:, None]
        return self.weights.reshape(self.groups, len(self.weights) // self.groups, -1)

    def stored(self, matrix: np.ndarray) -> np.ndarray:
        """A matrix like `matrix` in the layout of the operation."""
        values = matrix[:, 0].T if self.name == "DEPTHWISE_CONV_2D" else matrix
        return values.reshape(self.weights.shape)

    def inputs(
        self, values: np.ndarray, most: int | None = None, random: np.random.Generator | None = None
    ) -> np.ndarray:
        """What each weight is multiplied by, [groups, positions, inputs].

        Args:
            values: an input of the operation.
            most: number of positions per example that are drawn; all by default.
            random: draws them.
        """
        if self.name == "FULLY_CONNECTED":
            rows = values.reshape(-1, self.weights.shape[1])
            return rows[_drawn(len(rows), most and most * len(values), random)][None]
        read = _spread_windows if self.name == "TRANSPOSE_CONV" else _windows
        size, options = self.weights.shape[1:3], self.operator.builtinOptions
        windows_of_images = []
        for image in values:
            windows = read(image, size, options)
            height, width = windows.shape[:2]
            rows, columns = np.divmod(_drawn(height * width, most, random), width)
            windows_of_images.append(windows[rows, columns].reshape(len(rows), -1, windows.shape[-1]))
        windows = np.concatenate(windows_of_images)
        positions, places, channels = windows.shape
        if self.name == "DEPTHWISE_CONV_2D":
            return windows.transpose(2, 0, 1).repeat(self.weights.shape[-1] // channels, axis=0)
        windows = windows.reshape(positions, places, self.groups, -1).transpose(2, 0, 1, 3)
        return windows.reshape(self.groups, positions, -1)


def calibration_samples(samples: Sequence[Sample]) -> Sequence[Sample]:
    """At most `CALIBRATION_SAMPLES` of the samples, evenly spaced."""
    return [samples[number] for number in spread(len(samples), CALIBRATION_SAMPLES)]


def weighted_operators(model: schema.ModelT) -> list[schema.OperatorT]:
    """Convolutions and dense layers of the main graph, in order."""
    return [o for o in model.subgraphs[0].operators if flatfile.builtin_name(model, o) in LAYERS]


def find_layers(model: schema.ModelT) -> Iterator[CalibratedLayer]:
    """Layers of the main graph whose weights belong to them alone."""
    uses: collections.Counter[int] = collections.Counter()
    for graph in model.subgraphs:
        for operator in graph.operators:
            uses.update(graph.tensors[index].buffer for index in operator.inputs if index >= 0)
    graph = model.subgraphs[0]
    for operator in weighted_operators(model):
        name = flatfile.builtin_name(model, operator)
        tensor = graph.tensors[operator.inputs[1]]
        data = model.buffers[tensor.buffer].data
        is_float32 = tensor.type == schema.TensorType.FLOAT32 and tensor.sparsity is None
        if data is None or not is_float32 or uses[tensor.buffer] != 1:
            continue
        layer = CalibratedLayer(name, operator, np.frombuffer(data, np.float32).reshape(tensor.shape))
        if name == "CONV_2D":
            channels = int(graph.tensors[layer.source].shape[-1])
            layer = dataclasses.replace(layer, groups=channels // layer.weights.shape[-1])
        yield layer


def statistics(
    content: bytes, layers: Sequence[CalibratedLayer], samples: Sequence[Sample]
) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
    """Means [groups, inputs] and second moments [groups, inputs, inputs] of the inputs of each layer.

    Args:
        content: the .tflite file that the layers are from.
        layers: from `find_layers`.
        samples: inputs of the file's signature by name.

    Returns:
        Float32, layer by layer; layers with more than `MOST_INPUTS` inputs have no second moments.
    """
    tensors = flatfile.read_model(content).subgraphs[0].tensors
    chunk: list[CalibratedLayer] = []
    size = 0
    for layer in layers:
        groups, _, inputs = layer.matrix.shape
        existing = len(samples) * math.prod(map(int, tensors[layer.operator.outputs[0]].shape[:-1]))
        bytes_needed = 4 * groups * inputs * min(existing, _positions(layer))
        if chunk and size + bytes_needed > _MOST_BYTES:
            yield from _statistics(content, chunk, samples)
            chunk, size = [], 0
        chunk.append(layer)
        size += bytes_needed
    yield from _statistics(content, chunk, samples)


def _positions(layer: CalibratedLayer) -> int:
    """Number of positions that are used for a layer, of all samples together."""
    inputs = layer.matrix.shape[-1]
    return max(_LEAST_POSITIONS, _POSITIONS_PER_INPUT * inputs if inputs <= MOST_INPUTS else 0)


def _statistics(
    content: bytes, layers: Sequence[CalibratedLayer], samples: Sequence[Sample]
) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
    inputs_of_layers: list[list[np.ndarray]] = [[] for _ in layers]
    randoms = [np.random.default_rng(0) for _ in layers]
    for values_of in _runs(content, samples, [layer.source for layer in layers]):
        for layer, parts, random in zip(layers, inputs_of_layers, randoms, strict=True):
            values = values_of(layer.source)
            most = -(-_positions(layer) // (len(samples) * max(1, len(values))))
            parts.append(layer.inputs(values, most, random))
    for parts in inputs_of_layers:
        inputs = np.concatenate(parts, axis=1)
        parts.clear()
        moments = None
        if inputs.shape[2] <= MOST_INPUTS:
            moments = inputs.transpose(0, 2, 1) @ inputs / np.float32(inputs.shape[1])
        yield inputs.mean(axis=1, dtype=np.float64).astype(np.float32), moments


def ranges(content: bytes, samples: Sequence[Sample]) -> dict[int, tuple[float, float]]:
    """The smallest and the largest value of each result in the main graph, which include 0.

    Args:
        content: a float32 file with one signature.
        samples: inputs of the signature by name.

    Returns:
        By tensor, for the inputs of the graph and the float32 results of its operations.
    """
    graph = flatfile.read_model(content).subgraphs[0]
    results = [*graph.inputs, *(index for operator in graph.operators for index in operator.outputs)]
    limits = {int(i): (0.0, 0.0) for i in results if graph.tensors[i].type == schema.TensorType.FLOAT32}
    for values_of in _runs(content, samples, limits):
        for index, (low, high) in limits.items():
            values = values_of(index)
            limits[index] = min(low, float(values.min(initial=0))), max(high, float(values.max(initial=0)))
    return limits


def _runs(
    content: bytes, samples: Sequence[Sample], tensors: Collection[int]
) -> Iterator[Callable[[int], np.ndarray]]:
    """For each sample a function of the index of one of the tensors, which gives its values."""
    from ai_edge_litert.interpreter import Interpreter

    # The runtime keeps inputs and outputs only.
    model = flatfile.read_model(content)
    graph = model.subgraphs[0]
    ends = {*map(int, graph.inputs), *map(int, graph.outputs)}
    constant = {i for i in tensors if model.buffers[graph.tensors[i].buffer].data is not None}
    graph.outputs = np.array([*graph.outputs, *sorted({*tensors} - ends - constant)], np.int32)
    run = Interpreter(model_content=flatfile.write_model(model))
    places = {entry.name.decode(): entry.tensorIndex for entry in model.signatureDefs[0].inputs}
    shapes: dict[str, tuple[int, ...]] = {}
    for sample in samples:
        if shapes != {name: values.shape for name, values in sample.items()}:
            for name, values in sample.items():
                shapes[name] = values.shape
                run.resize_tensor_input(places[name], values.shape)
            with hidden_stderr():
                run.allocate_tensors()
        for name, values in sample.items():
            run.set_tensor(places[name], values)
        run.invoke()
        yield run.get_tensor


def _drawn(count: int, most: int | None, random: np.random.Generator | None) -> np.ndarray:
    """At most so many of the numbers from 0 to `count`."""
    if random is None or most is None or most >= count:
        return np.arange(count)
    return random.choice(count, most, replace=False, shuffle=False)


def _windows(values: np.ndarray, size: Sequence[int], options) -> np.ndarray:
    """The windows [rows, columns, height, width, C] that a convolution reads from a map [H, W, C], a view."""
    strides = (options.strideH, options.strideW)
    dilations = (options.dilationHFactor, options.dilationWFactor)
    spans = [(length - 1) * dilation + 1 for length, dilation in zip(size, dilations, strict=True)]
    if options.padding == schema.Padding.SAME:
        missing = [
            max(0, (-(-length // stride) - 1) * stride + span - length)
            for length, stride, span in zip(values.shape[:2], strides, spans, strict=True)
        ]
        values = np.pad(values, [*((pad // 2, pad - pad // 2) for pad in missing), (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(values, spans, axis=(0, 1))
    windows = windows[:: strides[0], :: strides[1], :, :: dilations[0], :: dilations[1]]
    return windows.transpose(0, 1, 3, 4, 2)


def _spread_windows(values: np.ndarray, size: Sequence[int], options) -> np.ndarray:
    """Like `_windows` for a transposed convolution, which spreads its input: between two neighbours are
    `stride - 1` zeros."""
    height, width, channels = values.shape
    strides = (options.strideH, options.strideW)
    spread = np.zeros([(height - 1) * strides[0] + 1, (width - 1) * strides[1] + 1, channels], values.dtype)
    spread[:: strides[0], :: strides[1]] = values
    # SAME padding only cuts off some of these positions at the edges.
    spread = np.pad(spread, [*((length - 1, length - 1) for length in size), (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(spread, size, axis=(0, 1))
    return windows[..., ::-1, ::-1].transpose(0, 1, 3, 4, 2)
