"""Gated layers: stock Keras layers that read their weights through gates."""

import contextlib
import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from tfsparsecap.core import keras_internals
from tfsparsecap.errors import InputError, warn_caller
from tfsparsecap.gates import Gate, as_block_shape


class GatedWeight:
    """Descriptor of a layer's weight: reading returns the gated weight, writing stores the raw one."""

    def __init__(self, transposed: bool = False) -> None:
        self.transposed = transposed

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        # Some weights are properties in Keras (Dense.kernel), others plain attributes (LSTMCell.kernel).
        self.stock = getattr(super(owner, owner), name, None)

    def stored(self, layer: Any) -> Any:
        if isinstance(self.stock, property):
            return self.stock.__get__(layer)
        try:
            return layer.__dict__[self.name]
        except KeyError:
            raise AttributeError(f"{type(layer).__name__} has no {self.name} before it is built") from None

    def __get__(self, layer: Any, owner: type | None = None) -> Any:
        if layer is None:
            return self
        weight = self.stored(layer)
        gate = layer.__dict__.get(f"{self.name}_gate")
        return weight if gate is None or layer.__dict__.get("_reads_stored_weights") else gate.read(weight)

    def __set__(self, layer: Any, value: Any) -> None:
        layer.__dict__[self.name] = value


if TYPE_CHECKING:
    from keras.layers import Layer as _MixedLayer
else:
    _MixedLayer = object


class GatedLayer(_MixedLayer):
    """Mixin for stock layers: `class GatedDense(GatedLayer, keras.layers.Dense): kernel = GatedWeight()`.

    It adds the arguments `block_shape` and `fixed_gates` (whether pruning methods never change the gates)
    and, once built, an attribute `NAME_gate` for every gated weight NAME.
    """

    gated_names: tuple[str, ...]
    block_shape: tuple[int, int] = (1, 1)
    fixed_gates = False

    def __init__(
        self, *args: Any, block_shape: Sequence[int] = (1, 1), fixed_gates: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.block_shape = as_block_shape(block_shape)
        if fixed_gates:
            self.fixed_gates = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.gated_names = tuple(
            dict.fromkeys(
                name
                for base in reversed(cls.__mro__)
                for name, v in vars(base).items()
                if isinstance(v, GatedWeight)
            )
        )
        stock_build = getattr(super(), "build", None)
        if stock_build is None:  # a mixin without a stock layer
            return

        # Keras inspects the signature of `build`, so it must be the stock layer's.
        @functools.wraps(stock_build)
        def build(self: "GatedLayer", *args: Any, **kwargs: Any) -> None:
            stock_build(self, *args, **kwargs)
            if self.gate_of:
                return
            # The stock layer enables LoRA while it is built, which locks the layer.
            locked = getattr(self, "lora_enabled", False)
            with keras_internals.unlocked(self) if locked else contextlib.nullcontext():
                self.add_gates()

        cls.build = build

    def add_gates(self) -> None:
        """Creates the gates of a built layer's weights.

        Raises:
            InputError: the layer is quantized.
        """
        if self.quantization_mode is not None:
            raise InputError(
                f"{self.path or self.name} is quantized ({self.quantization_mode}) and cannot be gated: prune"
                " the float layer, and quantize it after strip_pruning"
            )
        for name in self.gated_names:
            weight = self.stored_weight(name)
            requested = self.block_shape[::-1] if self.gated_descriptor(name).transposed else self.block_shape
            rows, block_shape = self.tiling(name, tuple(weight.shape), requested)
            gate = Gate((1, 1) if name in self.single_names else block_shape, name=f"{name}_gate")
            gate.build(tuple(weight.shape), rows=rows)
            if gate.block != requested and name not in self.single_names:
                warn_caller(
                    f"{self.path or self.name}: the {name} of shape {tuple(weight.shape)} does not"
                    " divide into"
                    f" blocks of {requested}; its blocks are {gate.block}"
                )
            if self.fixed_gates:
                gate.fix()
            setattr(self, f"{name}_gate", gate)

    #: Weights that always have single gates, whatever the block shape, because they do not sum over inputs.
    single_names: tuple[str, ...] = ()

    def tiling(
        self, name: str, shape: tuple[int, ...], block_shape: tuple[int, int]
    ) -> tuple[int, tuple[int, int]]:
        """Returns how a weight is treated as a matrix [summed over, outputs], and its largest blocks.

        Returns:
            (number of rows, (rows of a block, columns of a block)); the block need not divide the matrix.
        """
        return math.prod(shape[:-1]), block_shape

    @classmethod
    def gated_descriptor(cls, name: str) -> GatedWeight:
        descriptor: GatedWeight = next(vars(base)[name] for base in cls.__mro__ if name in vars(base))
        return descriptor

    def stored_weight(self, name: str) -> keras.Variable:
        """The raw weight behind the gate, before any mask."""
        return self.gated_descriptor(name).stored(self)

    @property
    def gate_of(self) -> dict[str, Gate]:
        """Name of the weight -> its gate; empty before the layer is built."""
        return {
            name: self.__dict__[f"{name}_gate"]
            for name in self.gated_names
            if f"{name}_gate" in self.__dict__
        }

    def save_own_variables(self, store: dict[str, Any]) -> None:
        # Keras saves some kernels by reading the property, which would drop weights behind closed gates.
        self.__dict__["_reads_stored_weights"] = True
        try:
            super().save_own_variables(store)
        finally:
            del self.__dict__["_reads_stored_weights"]

    def get_config(self) -> dict[str, Any]:
        config = {**super().get_config(), "block_shape": list(self.block_shape)}
        fixed = all(gate.fixed for gate in self.gate_of.values()) if self.gate_of else self.fixed_gates
        return {**config, "fixed_gates": True} if fixed else config


def register(cls: type[keras.Layer]) -> type[keras.Layer]:
    """Class decorator: registers a gated layer with Keras, and as the gated form of its stock layer."""
    stock = next(base for base in cls.__mro__ if not issubclass(base, GatedLayer))
    GATED_FORMS[stock] = cls
    keras.saving.register_keras_serializable("tfsparsecap")(cls)
    return cls


#: Stock layer class -> gated layer class.
GATED_FORMS: dict[type[keras.Layer], type[keras.Layer]] = {}


def gate_in_place(layer: keras.Layer, block_shape: Sequence[int]) -> None:
    """Turns a built stock layer into its gated form: the same object and weights, with new gates.

    It works in place, like Keras's `enable_lora` and `quantize`, because layers are referenced in too many
    ways (functional graphs, attributes, wrappers) to be replaced reliably.
    """
    layer.__class__ = GATED_FORMS[type(layer)]
    with contextlib.ExitStack() as scopes:
        scopes.enter_context(keras_internals.unlocked(layer))
        layer.block_shape = as_block_shape(block_shape)
        # The gates' variables get the same paths as in a layer created with gates.
        for part in (layer.path or layer.name).split("/"):
            scopes.enter_context(keras.name_scope(part))
        layer.add_gates()


def check_stock_form(layer: keras.Layer) -> type[keras.Layer]:
    """Returns the class of a gated layer without gates.

    Raises:
        InputError: the layer's class is not from this package.
    """
    stock = next((stock for stock, gated in GATED_FORMS.items() if gated is type(layer)), None)
    if stock is None:
        raise InputError(
            f"{layer.path or layer.name} is a {type(layer).__name__}, which has no stock form: strip_pruning"
            f" supports {', '.join(sorted(gated.__name__ for gated in GATED_FORMS.values()))}"
        )
    return stock


def _drop_lora(layer: keras.Layer, name: str) -> None:
    """Turns a layer whose weight contains its LoRA weights into one without them. (Keras cannot.)"""
    delattr(layer, f"lora_{name}_a")
    delattr(layer, f"lora_{name}_b")
    layer.lora_enabled, layer.lora_rank, layer.lora_alpha = False, None, None


def ungate_in_place(layer: keras.Layer, masked: bool = True) -> None:
    """Masks the weights of a gated layer by its rounded gates and turns it back into a stock layer.

    LoRA weights become a part of the masked ones.

    Args:
        layer: a gated layer, changed in place.
        masked: False keeps the raw weights.

    Raises:
        InputError: see `check_stock_form`. The layer is then unchanged.
    """
    stock = check_stock_form(layer)
    for name, gate in layer.gate_of.items() if masked else ():
        weight = layer.stored_weight(name)
        # Negative weights times 0 are -0.0, which compresses badly in files.
        value = gate.call(tf.convert_to_tensor(weight), training=False) + 0.0
        if getattr(layer, "lora_enabled", False):
            _drop_lora(layer, name)
            weight = layer.stored_weight(name)
            weight.trainable = layer.trainable  # `enable_lora` freezes it
        weight.assign(value)
    with keras_internals.unlocked(layer):
        for name, gate in layer.gate_of.items():
            gate.owner = None
            delattr(layer, f"{name}_gate")
            keras_internals.untrack(layer, gate)
        del layer.block_shape
        layer.__dict__.pop("fixed_gates", None)
    layer.__class__ = stock
