"""An optimizer that updates weights with another optimizer and gates with a pruning method."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from tfsparsecap.core import keras_internals
from tfsparsecap.errors import warn_caller

if TYPE_CHECKING:
    from tfsparsecap.pruning.method import PruningMethod


def _of_inner(name: str) -> Any:
    """An attribute of the inner optimizer, which Keras's constructor sets before there is one."""

    def change(optimizer: Any, value: Any) -> None:
        if "inner_optimizer" in optimizer.__dict__:
            setattr(optimizer.inner_optimizer, name, value)

    return property(lambda optimizer: getattr(optimizer.inner_optimizer, name), change)


@keras.saving.register_keras_serializable("tfsparsecap")
class PruningOptimizer(keras.optimizers.Optimizer):
    """Passes weights to `inner_optimizer` and gates to a pruning method.

    Created by `PruningMethod.wrap`, which `compile` of a pruned model calls. Weight decay, clipping,
    schedules, averages and gradient accumulation of the inner optimizer do not affect the gates: every
    `apply` calls the method's `step`. Settings of the inner optimizer can also be read and changed here.

    Args:
        inner_optimizer: any Keras optimizer except `LossScaleOptimizer`, which must wrap this one.
        method: the pruning method of the model whose variables are given to `apply`.
    """

    built: bool
    weight_decay, clipnorm = _of_inner("weight_decay"), _of_inner("clipnorm")
    clipvalue, global_clipnorm = _of_inner("clipvalue"), _of_inner("global_clipnorm")

    def __init__(
        self,
        inner_optimizer: keras.optimizers.Optimizer,
        method: "PruningMethod",
        name: str = "pruning_optimizer",
    ) -> None:
        super().__init__(learning_rate=0.0, name=name)
        self.inner_optimizer = inner_optimizer
        self.method = method
        #: The method's variables: `tf.train.Checkpoint` saves attributes of an optimizer, not of a method.
        self.method_state = list(method.variables)
        #: Whether this is the optimizer inside a `LossScaleOptimizer`.
        self.scaled = False
        self._warned = False

    def __getattr__(self, name: str) -> Any:
        # Called for what this class lacks, such as `beta_1`. Keras's constructor runs without the inner one.
        if name.startswith("_") or "inner_optimizer" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__} has no {name}")
        return getattr(self.inner_optimizer, name)

    def exclude_from_weight_decay(self, *args: Any, **kwargs: Any) -> None:
        self.inner_optimizer.exclude_from_weight_decay(*args, **kwargs)

    def build(self, variables: list[keras.Variable]) -> None:
        weights, _ = self._split(variables, variables)
        self.inner_optimizer.build(weights)
        super().build(variables)

    def _split(
        self, values: Sequence[Any], variables: Sequence[keras.Variable]
    ) -> tuple[list[Any], list[Any]]:
        """Returns values of the weights, and of the gates in the method's order (None if missing)."""
        order = {id(gate.logits): index for index, gate in enumerate(self.method.gates)}
        weights, gates = [], [None] * len(order)
        for value, variable in zip(values, variables, strict=True):
            index = order.get(id(variable))
            if index is None:
                weights.append(value)
            else:
                gates[index] = value
        return weights, gates

    def apply(
        self, grads: list[tf.Tensor | None], trainable_variables: list[keras.Variable] | None = None
    ) -> None:
        if not self.built:
            assert trainable_variables is not None  # as for any Keras optimizer
            self.build(trainable_variables)
        if trainable_variables is None:
            trainable_variables = keras_internals.optimizer_variables(self)
        weight_gradients, gate_gradients = self._split(grads, trainable_variables)
        weights, _ = self._split(trainable_variables, trainable_variables)
        self._warn_of_missing(gate_gradients)
        gate_gradients = [self._of_all_replicas(gradient) for gradient in gate_gradients]
        if self.method.before_optimizer_step is not None:
            terms = self.method.before_optimizer_step(self._of_gated_weights(weight_gradients, weights))
            weight_gradients = self._with_terms(weight_gradients, weights, terms or [])
        self._update(weight_gradients, weights)
        self.method.step(gate_gradients)

    def _warn_of_missing(self, gate_gradients: list[tf.Tensor | None]) -> None:
        """Warns of gates that a custom loop leaves out: without a gradient, a gate counts as unimportant."""
        if self._warned or not self.method.trains_gates:
            return
        triples = zip(self.method.weights, self.method.moves, gate_gradients, strict=True)
        missing = [weight.path for weight, moves, gradient in triples if moves and gradient is None]
        if missing:
            self._warned = True
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            warn_caller(
                f"the gates of {', '.join(missing[:3])}{more} get no gradient, so these weights are removed"
                " first: compute gradients of all of model.trainable_variables, with a loss that depends on"
                " them, or freeze the layers (layer.trainable = False)"
            )

    def _update(self, gradients: Sequence[tf.Tensor | None], weights: list[keras.Variable]) -> None:
        """Updates the weights, unless the method skips this step."""
        learn = self.method.weights_learn()
        replica = tf.distribute.get_replica_context()
        if learn is None:
            self.inner_optimizer.apply(gradients, weights)
        elif replica is None:
            run_if(learn, lambda: self.inner_optimizer.apply(gradients, weights))
        else:
            # Optimizers sum over replicas, which wait for each other. This is impossible inside a branch of
            # one replica, so the branch encloses all of them.
            replica.merge_call(self._update_all, args=(learn, gradients, weights))

    def _update_all(
        self,
        strategy: tf.distribute.Strategy,
        learn: tf.Tensor,
        gradients: Sequence[tf.Tensor | None],
        weights: list[keras.Variable],
    ) -> None:
        # The method computes the same on all replicas, so one result is enough.
        learn, *_ = strategy.experimental_local_results(learn)
        apply = self.inner_optimizer.apply
        run_if(learn, lambda: strategy.extended.call_for_each_replica(apply, args=(gradients, weights)))

    def _of_gated_weights(
        self, gradients: Sequence[tf.Tensor | None], weights: list[keras.Variable]
    ) -> list[tf.Tensor | None]:
        """Returns complete gradients of the gated weights, in the method's order."""
        gradient_of = {id(weight): gradient for weight, gradient in zip(weights, gradients, strict=True)}
        return [self._of_all_replicas(gradient_of.get(id(weight))) for weight in self.method.weights]

    def _with_terms(
        self,
        gradients: Sequence[tf.Tensor | None],
        weights: list[keras.Variable],
        terms: Sequence[tf.Tensor | None],
    ) -> list[tf.Tensor | None]:
        """Adds the gradients of the method's own term of the loss, scaled as the gradients are.

        `terms` are complete, but the optimizer sums the gradients of the replicas.
        """
        replica = tf.distribute.get_replica_context()
        share = 1.0 if replica is None else 1.0 / replica.num_replicas_in_sync
        if keras_internals.takes_complete_gradients(self):
            share = 1.0
        factor = share * (self.inner_optimizer.loss_scale_factor or 1.0)
        term_of = {id(weight): term for weight, term in zip(self.method.weights, terms, strict=False)}
        changed = []
        for gradient, weight in zip(gradients, weights, strict=True):
            term = term_of.get(id(weight))
            if gradient is not None and term is not None:
                gradient = tf.convert_to_tensor(gradient)
                gradient += tf.cast(factor * term, gradient.dtype)
            changed.append(gradient)
        return changed

    def _of_all_replicas(self, gradient: tf.Tensor | None) -> tf.Tensor | None:
        """Returns the unscaled gradient, summed over the replicas as in Keras's optimizers.

        It is the same on every replica, so that the method updates all equally.
        """
        if gradient is None:
            return None
        gradient = tf.convert_to_tensor(gradient)
        if self.inner_optimizer.loss_scale_factor is not None:
            gradient = gradient / self.inner_optimizer.loss_scale_factor
        replica = tf.distribute.get_replica_context()
        if replica is None or replica.num_replicas_in_sync == 1:
            return gradient
        if keras_internals.takes_complete_gradients(self):
            return gradient
        return replica.all_reduce(tf.distribute.ReduceOp.SUM, gradient)

    def scale_loss(self, loss: tf.Tensor) -> tf.Tensor:
        return self.inner_optimizer.scale_loss(loss)

    @property
    def variables(self) -> list[keras.Variable]:
        return [*self.inner_optimizer.variables, *self.method.variables]

    def save_own_variables(self, store: Any) -> None:
        pass  # Keras saves `inner_optimizer` as a part of this one, and the model the method's state

    def load_own_variables(self, store: Any) -> None:
        if len(store.keys()):  # a file of an earlier version
            super().load_own_variables(store)

    @property
    def learning_rate(self) -> Any:
        return self.inner_optimizer.learning_rate

    @learning_rate.setter
    def learning_rate(self, value: Any) -> None:
        self.inner_optimizer.learning_rate = value

    @property
    def optimizers(self) -> list[keras.optimizers.Optimizer]:
        """The optimizer with averages: Keras's `SwapEMAWeights` looks for it here if the loss is scaled."""
        if not (self.scaled and getattr(self.inner_optimizer, "use_ema", False)):
            raise AttributeError("optimizers")
        return [self.inner_optimizer]

    @property
    def iterations(self) -> keras.Variable | tf.Tensor:
        return self.method.iterations(self.inner_optimizer)

    def finalize_variable_values(self, var_list: list[keras.Variable]) -> None:
        self.inner_optimizer.finalize_variable_values(self._split(var_list, var_list)[0])

    def get_config(self) -> dict[str, Any]:
        return {
            "inner_optimizer": keras.saving.serialize_keras_object(self.inner_optimizer),
            "name": self.name,
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: dict[str, Any] | None = None
    ) -> keras.optimizers.Optimizer:
        """Returns the inner optimizer; the pruned model wraps it again."""
        return keras.saving.deserialize_keras_object(config["inner_optimizer"], custom_objects=custom_objects)


def run_if(condition: tf.Tensor, action: Callable[[], Any]) -> None:
    """Calls `action` in the compiled step if `condition` is true."""

    def branch() -> tf.Operation:
        action()
        return tf.no_op()

    tf.cond(condition, branch, lambda: tf.no_op())


def once_for_all(decide: Callable[[], None]) -> None:
    """Runs a part of a step once for all replicas of a distribution strategy.

    Needed if a branch (`tf.cond`) contains code that waits for other replicas: the branch must then enclose
    all replicas. Without a strategy, `decide` is simply called.

    Args:
        decide: reads and assigns variables; must not use tensors of a single replica.

    Examples:
        >>> count = tf.Variable(0)
        >>> once_for_all(lambda: count.assign_add(1) and None)
        >>> int(count)
        1
    """
    replica = tf.distribute.get_replica_context()
    if replica is None:
        decide()
    else:
        replica.merge_call(lambda strategy: decide())
