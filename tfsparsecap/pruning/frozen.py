"""Training on with a mask that stays as it is."""

import keras

from tfsparsecap.errors import InputError
from tfsparsecap.pruning.fixed_mask import FixedMask
from tfsparsecap.pruning.registry import register


@register("frozen")
class FrozenMask(FixedMask):
    """Keeps weights that are zero at zero while the others are trained.

    For a sparse model that is to learn on: with other data, at another rate, for another loss. A block is
    closed where all its weights are zero.

    Args:
        sparsity: share of the gated weights that must be zero, so that a dense model is not taken for a
            sparse one; None takes any.
        total_steps: not used.
        block_shape: (inputs, outputs) of a block.

    Raises:
        InputError: on pruning, the model has another sparsity, or no zeros.

    Example:
        >>> import tfsparsecap as sc
        >>> model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(64)])
        >>> model = sc.strip_pruning(sc.prune(model, "magnitude", sparsity=0.75))
        >>> round(float(sc.prune(model, "frozen").pruning.current_sparsity()), 2)
        0.75
    """

    def __init__(self, sparsity: float | None = None, total_steps: int | None = None, *, block_shape=(1, 1)):
        super().__init__(sparsity or 0.0, block_shape=block_shape)
        self.asked, self.total_steps = sparsity, total_steps
        #: Whether the mask comes with the weights, from a file.
        self.restored = False

    def attach(self, model: keras.Model) -> None:
        super().attach(model)
        if self.restored:
            return
        self.close([size > 0.0 for size in self.magnitudes()])
        found = float(self.current_sparsity())
        if found == 0.0:
            raise InputError(
                f"none of the weights of {model.name} are zero, so there is no mask to keep: give a model"
                " that was pruned (training.start_from in a configuration)"
            )
        if self.asked is not None and abs(found - self.asked) > 0.005:
            raise InputError(
                f"{found:.1%} of the weights of {model.name} are zero, not {self.asked:.1%}: name the"
                " sparsity that it has, or none"
            )
        self.sparsity = found

    def _check_reachable(self) -> None:
        """Whatever there is has been reached."""

    @property
    def target(self) -> float | None:
        """The sparsity of the mask, wherever it came from; before `attach` the one asked for."""
        return float(self.current_sparsity()) if self.gates else self.asked

    def get_config(self) -> dict:
        return {**super().get_config(), "sparsity": self.asked, "total_steps": self.total_steps}

    @classmethod
    def from_config(cls, config: dict) -> "FrozenMask":
        method = super().from_config(config)
        method.restored = True
        return method
