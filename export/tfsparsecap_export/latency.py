"""Latency of a Keras model on LiteRT, timed runs of a file, and models that are made fast enough."""

import time
from typing import Any

import keras
import numpy as np

from tfsparsecap.captioning.models.captioner_base import Captioner
from tfsparsecap.core.model_call import check_model
from tfsparsecap.errors import InputError, check_number, check_whole
from tfsparsecap.pruning.apply import prune
from tfsparsecap.pruning.method import PruningMethod
from tfsparsecap.slimming.channel_choice import RatioError
from tfsparsecap.slimming.options import Options
from tfsparsecap.slimming.plan import slim
from tfsparsecap_export.encode import DEFAULT_TARGET
from tfsparsecap_export.encode.costs import kernel_costs
from tfsparsecap_export.int8_network import expected_ms
from tfsparsecap_export.keras_to_tflite.graph import float32_computation, model_graph


def model_latency(model: keras.Model, runs: int = 20, *, inputs: Any = None) -> float:
    """Returns the milliseconds of a Keras model as float32, one example on one thread: the fastest of `runs`.

    Args:
        model: a built model that is not a captioner.
        runs: timed runs, after one that is not timed.
        inputs: what the model is called with, see `export_model`.

    Raises:
        InputError: the model cannot be converted, or `runs` is below 1.

    Examples:
        >>> layers = [keras.Input((8,)), keras.layers.Dense(4)]
        >>> model_latency(keras.Sequential(layers)) > 0
        True
    """
    runs = check_whole("runs", runs, at_least=1)
    with float32_computation(model):
        interpreter = warm_interpreter(model_graph(model, 1, inputs))
    return 1e3 * min(run_seconds(interpreter) for _ in range(runs))


def warm_interpreter(content: bytes, value: np.ndarray | None = None):
    """An interpreter of a file that has run once, on one thread.

    Args:
        content: the bytes of the file.
        value: of its only input; zeros by default.

    Raises:
        ValueError, RuntimeError: the runtime does not load or run the file.
    """
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=content, num_threads=1)
    interpreter.allocate_tensors()
    for detail in interpreter.get_input_details():
        zeros = np.zeros(detail["shape"], detail["dtype"])
        interpreter.set_tensor(detail["index"], zeros if value is None else value)
    interpreter.invoke()
    return interpreter


def run_seconds(interpreter) -> float:
    """Seconds of a run."""
    start = time.perf_counter()
    interpreter.invoke()
    return time.perf_counter() - start


def prune_to_latency(
    model: keras.Model,
    milliseconds: float,
    method: PruningMethod,
    *,
    target: str = DEFAULT_TARGET,
    inputs: Any = None,
    skip: Any = (),
    **slimming: Any,
) -> keras.Model:
    """Makes a model so small that its file takes at most `milliseconds`, and adds the gates of a method.

    Zeros make products with few rows faster, such as those of an LSTM or of a few tokens; with many rows, and
    in convolutions, only smaller layers do. So this removes as many channels, units and heads (`sc.slim`)
    as the budget needs after all zeros of the method have been counted, perhaps none, and calls `sc.prune`.

    The time is what the costs of kernels predict for the int8 file that `export_model` writes with the same
    target: give `samples` to the export of convolutional networks, and `format="int8"` after a method without
    blocks of (16, 1), whose layers `auto` stores as float. `report.speedup.ms` is the prediction for the
    trained model, whose zeros are not spread evenly.

    Args:
        model: a built model that is not a captioner, without gates. It is left untouched if it is slimmed.
        milliseconds: of one example on the target.
        method: for `sc.prune`; its `sparsity` is the share of zeros, which counts if it prunes in blocks of
            (16, 1).
        target: the processor, "arm64" or "x86_64", see `encode.costs.TARGETS`.
        inputs: what the model is called with, see `export_model`.
        skip: layers that `sc.slim` leaves whole.
        slimming: other arguments of `sc.slim`, such as `samples` and `keep`. `multiple` is by default the
            number of inputs in a block.

    Returns:
        A model with gates. Compile and train it, call `sc.strip_pruning`, and export it for the same target.

    Raises:
        InputError: the budget cannot be met, the target has no costs, an argument is wrong, or the model
            cannot be slimmed, pruned or converted.

    Examples:
        >>> import tfsparsecap as sc
        >>> layers = [keras.Input((256,)), keras.layers.Dense(1024, "relu"), keras.layers.Dense(8)]
        >>> method = sc.Supermask(0.9, total_steps=100, block_shape=(16, 1))
        >>> small = prune_to_latency(keras.Sequential(layers), 0.006, method)
        >>> small.layers[0].units < 1024
        True
    """
    milliseconds = check_number("milliseconds", milliseconds, above=0)
    check_model(model, "prune_to_latency")
    if isinstance(model, Captioner):
        raise InputError(
            f"{model.name} is a captioner: slim its encoder with python -m tfsparsecap.slim_captioner, and"
            " prune it while it is trained"
        )
    if not isinstance(method, PruningMethod):
        raise InputError(
            f"method is {method!r:.100}: give a pruning method, such as sc.Supermask(0.9, total_steps=1000,"
            " block_shape=(16, 1))"
        )
    costs = kernel_costs(target)
    zeros = 0.0 if method.block_shape[0] % 16 else method.sparsity

    def latency(candidate: keras.Model) -> float:
        with float32_computation(candidate):
            content = model_graph(candidate, 1, inputs)
        return expected_ms(content, costs, zeros)

    own = {"budget": "latency", "latency": latency, "skip": skip}
    if given := sorted(own.keys() & slimming.keys()):
        raise InputError(f"prune_to_latency sets {given[0]}= of sc.slim itself: leave it out")
    slimming = {"multiple": max(8, method.block_shape[0]), **slimming, **own}
    options = Options.named("prune_to_latency", slimming)  # also if nothing has to be slimmed
    before = latency(model)
    if before > milliseconds:
        ratio = 1 - milliseconds / before
        try:
            model = slim(model, ratio, **vars(options))
        except RatioError as error:
            least = before * (1 - (error.nearest or 0.0))
            raise InputError(
                f"{model.name} takes {before:.3g} ms on {target} with {zeros:.0%} zeros in blocks, and"
                f" at least {least:.3g} ms with fewer channels, not {milliseconds:.3g}: give more"
                " milliseconds, more zeros in blocks of (16, 1), a smaller keep= or multiple=, or skip fewer"
                " layers"
            ) from error
    return prune(model, method)
