"""Relevance-based pruning: updates against NumPy, and pruning by a validation score."""

import warnings

import keras
import numpy as np
import pytest

from tfsparsecap.errors import InputError
from tfsparsecap.pruning import Relevance, prune, strip_pruning

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(16, 8)).astype("float32")
# Far from the model's predictions, so that gradients have all sizes and relevance differs.
Y = (10 * RANDOM.normal(size=(16, 3))).astype("float32")
METRIC = "val_accuracy"


def dense():
    keras.utils.set_random_seed(4)
    layers = [keras.layers.Dense(6, bias_initializer="ones"), keras.layers.Dense(3, bias_initializer="ones")]
    return keras.Sequential([keras.Input((8,)), *layers])


def with_method(make=dense, cls=Relevance, *, optimizer=None, **options):
    options = {"lower_bound": 0.5, "metric": METRIC, **options}
    model = prune(make(), cls(**options))
    model.compile(optimizer or keras.optimizers.SGD(0.01), "mse")
    return model


def stored(model):
    return [np.array(weight) for weight in model.pruning.weights]


def masks(model):
    return [np.asarray(gate.logits) > 0 for gate in model.pruning.gates]


def validate(model, score):
    return model.pruning.on_validation_end({"loss": 1.0, METRIC: score})


def assert_equal(arrays, expected):
    for own, value in zip(arrays, expected, strict=True):
        np.testing.assert_array_equal(own, value)


def gradients_by_hand(weights, x=X, y=Y):
    """Gradients of the mean squared error of two linear layers: kernel, bias, kernel, bias."""
    first, first_bias, second, second_bias = weights
    hidden = x @ first + first_bias
    of_outputs = 2 * (hidden @ second + second_bias - y) / y.size
    of_hidden = of_outputs @ second.T
    return [x.T @ of_hidden, of_hidden.sum(0), hidden.T @ of_outputs, of_outputs.sum(0)]


@pytest.mark.parametrize("scale", [1.0, 3.0])
@pytest.mark.parametrize("decoupled", [False, True])
def test_a_step_matches_equation_7(scale, decoupled):
    model = with_method(weight_decay=0.1, gradient_scale=scale, decoupled=decoupled)
    before = [np.array(variable) for variable in model.trainable_variables]
    gradients = gradients_by_hand(before)
    assert max(abs(gradient).max() for gradient in gradients) > 1 > np.median(abs(gradients[0]))
    model.train_on_batch(X, Y)
    strength = 0.1 if decoupled else 2 * 0.01 * 0.1  # 2 * eta * lambda
    for own, weight, gradient in zip(model.trainable_variables, before, gradients, strict=True):
        # Biases never shrink.
        shrunk = weight * (1 - strength * np.exp(-scale * np.abs(gradient))) if weight.ndim == 2 else weight
        np.testing.assert_allclose(own, shrunk - 0.01 * gradient, rtol=1e-5, atol=1e-6)


of_optimizers = pytest.mark.parametrize(
    "optimizer",
    [
        lambda: keras.optimizers.AdamW(0.01, weight_decay=0.1),
        lambda: keras.optimizers.SGD(0.01, momentum=0.9, global_clipnorm=0.1, loss_scale_factor=64.0),
    ],
    ids=["adam", "clipped and scaled"],
)


@of_optimizers
def test_the_term_of_the_loss_passes_through_the_optimizer(optimizer):
    stock, model = dense(), with_method(optimizer=optimizer(), weight_decay=0.3)
    before = [np.array(variable) for variable in stock.trainable_variables]
    reference = optimizer()
    scale = reference.loss_scale_factor or 1.0
    gradients = [
        gradient + (0.6 * np.exp(-np.abs(gradient)) * weight if weight.ndim == 2 else 0.0)
        for weight, gradient in zip(before, gradients_by_hand(before), strict=True)
    ]
    reference.build(stock.trainable_variables)
    reference.apply([keras.ops.array(scale * gradient) for gradient in gradients], stock.trainable_variables)
    model.train_on_batch(X, Y)
    for own, twin in zip(model.trainable_variables, stock.trainable_variables, strict=True):
        np.testing.assert_allclose(own, np.array(twin), rtol=1e-5, atol=2e-6)


@of_optimizers
def test_decoupled_shrinking_uses_the_raw_gradient(optimizer):
    stock, model = dense(), with_method(optimizer=optimizer(), weight_decay=1e-3, decoupled=True)
    stock.compile(optimizer(), "mse")
    before = [np.array(variable) for variable in stock.trainable_variables]
    for network in (stock, model):
        network.train_on_batch(X, Y)
    for own, twin, weight, gradient in zip(
        model.trainable_variables, stock.trainable_variables, before, gradients_by_hand(before), strict=True
    ):
        shrinks = 1e-3 * np.exp(-np.abs(gradient)) * weight if weight.ndim == 2 else 0.0
        # AdamW's decay, 1e-3 of the weight, is applied afterwards, to a weight smaller by a thousandth.
        np.testing.assert_allclose(own, np.array(twin) - shrinks, rtol=1e-5, atol=2e-6)


def test_tokens_that_are_not_in_the_batch_shrink_as_irrelevant():
    def embedded():
        keras.utils.set_random_seed(3)
        table = keras.layers.Embedding(5, 4, embeddings_initializer="random_normal")
        return keras.Sequential([keras.Input((2,)), table, keras.layers.Flatten()])

    model = with_method(embedded, weight_decay=0.1, decoupled=True)
    (table,) = stored(model)
    words, targets = np.array([[1, 3], [3, 3], [1, 4]]), 5 * RANDOM.normal(size=(3, 8)).astype("float32")
    model.train_on_batch(words, targets)
    # By hand: each position adds 2 (e - t) / n to the gradient of its word.
    gradient = np.zeros_like(table)
    np.add.at(
        gradient, words.ravel(), (2 * (table[words].reshape(3, 8) - targets) / targets.size).reshape(-1, 4)
    )
    expected = table - 0.1 * np.exp(-np.abs(gradient)) * table - 0.01 * gradient
    np.testing.assert_allclose(stored(model)[0], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(stored(model)[0][[0, 2]], 0.9 * table[[0, 2]], rtol=1e-6)


@pytest.mark.parametrize("block", [(1, 1), (2, 1)])
def test_the_smallest_remaining_weights_are_removed(block):
    model = with_method(pruning_percentage=0.25, block_shape=block, weight_decay=0.0)
    kept = np.ones(66 // block[0], bool)
    for _ in range(3):
        assert not validate(model, 0.6)
        model.train_on_batch(X, Y)
        blocks = [np.abs(weight).reshape(-1, block[0], weight.shape[1]) for weight in stored(model)]
        now = np.concatenate([sizes.mean(1).ravel() for sizes in blocks])
        closed = (66 - kept.sum() * block[0]) + round(0.25 * kept.sum() * block[0])
        order = np.argsort(np.where(kept, now, -1.0))
        kept = np.ones_like(kept)
        kept[order[: closed // block[0]]] = False
        np.testing.assert_array_equal(np.concatenate([mask.ravel() for mask in masks(model)]), kept)
        # No more weights are removed until the next validation.
        model.train_on_batch(X, Y)
        np.testing.assert_array_equal(np.concatenate([mask.ravel() for mask in masks(model)]), kept)


def test_nothing_is_removed_below_the_bound_without_a_score_or_beyond_the_sparsity():
    model = with_method(sparsity=0.3, pruning_percentage=0.2)
    seen = []
    for score in (0.4, None, 0.5, 0.4, None, 0.7):
        model.pruning.on_validation_end({"loss": 0.1} if score is None else {METRIC: score})
        model.train_on_batch(X, Y)
        seen.append(float(model.pruning.current_sparsity()))
    assert seen == pytest.approx([0, 0, 13 / 66, 13 / 66, 13 / 66, 19 / 66])
    # The bound is met at the largest sparsity: no more pruning or shrinking.
    validate(model, 0.6)
    assert float(model.pruning.current_weight_decay()) == 0.0
    assert model.pruning.target == pytest.approx(19 / 66)


def test_weight_decay_falls_exponentially_and_is_reset_when_weights_are_removed():
    model = with_method(weight_decay=0.08, decay=0.25, patience=9)

    def rates(steps):
        seen = []
        for _ in range(steps):
            seen.append(float(model.pruning.current_weight_decay()))
            model.train_on_batch(X, Y)
        return seen

    # The interval between validations is not known yet.
    assert rates(4) == pytest.approx([0.08] * 4)
    validate(model, 0.1)
    assert rates(4) == pytest.approx([0.08 * 0.25 ** (step / 4) for step in range(4, 8)])
    validate(model, 0.9)
    # The first step is taken before weights are removed.
    assert rates(4) == pytest.approx([0.08 * 0.25**2] + [0.08 * 0.25 ** (step / 4) for step in range(3)])
    validate(model, 0.1)
    assert rates(2) == pytest.approx([0.08 * 0.25 ** (step / 4) for step in (3, 4)])
    validate(model, 0.1)  # two steps since the last validation
    assert rates(2) == pytest.approx([0.08 * 0.25 ** (step / 2) for step in (5, 6)])


@pytest.mark.parametrize("last", [0.2, 0.65])
def test_the_sparsest_state_that_met_the_bound_is_restored_and_fine_tuned(last):
    model = with_method(pruning_percentage=0.2, patience=2, finetune_validations=3)
    model.train_on_batch(X, Y)
    validate(model, 0.6)
    model.train_on_batch(X, Y)
    validate(model, 0.55)
    best, best_masks = model.get_weights(), masks(model)
    for score in (0.4, 0.3):
        model.train_on_batch(X, Y)
        assert float(model.pruning.current_sparsity()) > 0.3
        assert not validate(model, score)
    assert_equal(model.get_weights(), best)
    assert 0.19 < float(model.pruning.current_sparsity()) < 0.21
    # Fine-tuning: weights neither shrink nor are removed.
    before = [np.array(variable) for variable in model.trainable_variables]
    first, second = masks(model)
    opened = [first, np.ones(6), second, np.ones(3)]
    gradients = gradients_by_hand([weight * mask for weight, mask in zip(before, opened, strict=True)])
    model.train_on_batch(X, Y)
    for own, weight, gradient, mask in zip(model.trainable_variables, before, gradients, opened, strict=True):
        np.testing.assert_allclose(own, weight - 0.01 * gradient * mask, rtol=1e-5, atol=1e-6)
    assert [validate(model, score) for score in (0.4, 0.7)] == [False, False]
    tuned = model.get_weights()
    model.train_on_batch(X, Y)
    assert not model.pruning.finished
    # The last validation misses the bound, or is worse than the one before, whose state is restored.
    assert validate(model, last)
    assert model.pruning.finished
    assert_equal(model.get_weights(), tuned)
    assert_equal(masks(model), best_masks)
    assert not validate(model, 0.9)  # True is returned only once
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        strip_pruning(model)


def test_a_bound_that_is_never_met_leaves_the_model_dense_with_a_warning():
    model = with_method(lower_bound=0.9, patience=2)
    weights = None
    # As long as the metric improves, the model is still learning.
    for score, stops in ((0.1, False), (0.3, False), (0.2, False), (0.4, False), (0.4, False), (0.3, True)):
        model.train_on_batch(X, Y)
        weights = model.get_weights()
        if stops:
            with pytest.warns(UserWarning, match=r"val_accuracy never met 0.9 \(the best was 0.4\)"):
                assert validate(model, score)
        else:
            assert not validate(model, score)
    assert_equal(model.get_weights(), weights)
    assert model.pruning.finished and model.pruning.target is None
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # it has already warned
        strip_pruning(model)


def test_nan_metric_counts_as_a_miss():
    model = with_method(patience=2)
    validate(model, 0.6)
    model.train_on_batch(X, Y)
    assert not validate(model, float("nan"))
    assert float(model.pruning.current_weight_decay()) > 0.0
    with pytest.warns(UserWarning, match="as soon as weights were removed, so the model is dense"):
        validate(model, float("nan"))
    assert float(model.pruning.current_weight_decay()) == 0.0
    assert float(model.pruning.current_sparsity()) == 0.0


@pytest.mark.parametrize(
    ("metric", "mode", "sign"),
    [
        ("val_loss", "auto", -1),
        ("val_mean_absolute_error", "auto", -1),
        ("val_accuracy", "auto", 1),
        ("val_kl_divergence", "auto", -1),
        ("val_squared_hinge", "auto", -1),
        ("val_poisson", "auto", -1),
        ("val_logcosh", "auto", -1),
        ("val_log_cosh", "auto", -1),
        ("val_huber", "auto", -1),
        ("val_cosine_similarity", "auto", 1),
        ("val_lossless", "auto", 1),
        ("val_loss", "max", 1),
    ],
)
def test_mode_auto_treats_losses_and_errors_as_lower_is_better(metric, mode, sign):
    model = with_method(metric=metric, mode=mode)
    for score, met in ((0.5 - 0.1 * sign, False), (0.5 + 0.1 * sign, True)):
        model.pruning.on_validation_end({metric: score})
        assert (model.pruning.target is not None) == met


def train_and_validate(model, scores):
    for score in scores:
        for _ in range(3):
            model.train_on_batch(X, Y)
        if score is not None:
            validate(model, score)


@pytest.mark.parametrize("scores", [[0.4], [None]])
def test_stripping_restores_the_last_state_that_met_the_bound(scores):
    model = with_method(pruning_percentage=0.5)
    train_and_validate(model, [0.6, 0.6])
    weights = [np.array(layer.kernel) for layer in model.layers]
    train_and_validate(model, scores)
    with pytest.warns(UserWarning, match=r"the last state that met it, with a sparsity of 50.0%"):
        strip_pruning(model)
    assert_equal([layer.kernel for layer in model.layers], weights)


def test_restored_weights_of_an_epoch_before_the_pruning_are_replaced():
    model = with_method(pruning_percentage=0.5)
    first = model.get_weights()
    train_and_validate(model, [0.6, 0.6])
    best = [np.array(layer.kernel) for layer in model.layers]
    model.set_weights(first)  # as EarlyStopping(restore_best_weights=True)
    with pytest.warns(UserWarning, match=r"restored .*, with a sparsity of 0.0%: .* met 0.5, with 50.0%"):
        strip_pruning(model)
    assert_equal([layer.kernel for layer in model.layers], best)


def test_a_training_that_ends_during_fine_tuning_keeps_its_best_state():
    model = with_method(pruning_percentage=0.2, patience=1, finetune_validations=None)
    train_and_validate(model, [0.6, 0.55, 0.4, 0.8])
    best = [np.array(layer.kernel) for layer in model.layers]
    train_and_validate(model, [0.7])
    assert (np.array(model.layers[0].kernel) != best[0]).any()
    strip_pruning(model)
    assert_equal([layer.kernel for layer in model.layers], best)


def test_the_last_of_equally_good_states_is_kept():
    model = with_method(pruning_percentage=0.2, patience=1, finetune_validations=None)
    train_and_validate(model, [0.6, 0.55, 0.4, 0.8, 0.8])
    last = [np.array(layer.kernel) for layer in model.layers]
    strip_pruning(model)
    assert_equal([layer.kernel for layer in model.layers], last)


def test_stripping_warns_if_nothing_was_pruned():
    model = with_method()
    model.train_on_batch(X, Y)
    with pytest.warns(UserWarning, match="no validation reported val_accuracy"):
        strip_pruning(model)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "x"}, "choose one of auto, max, min"),
        ({"decoupled": "no"}, "decoupled is 'no': give True or False"),
        ({"metric": 3}, "metric is 3: give the name of a validation metric"),
        ({"lower_bound": float("nan")}, "lower_bound is nan: give a number"),
        ({"pruning_percentage": 10}, "below 1"),
        ({"weight_decay": 1.0}, "below 1"),
        ({"decay": 0.0}, "above 0"),
        ({"decay": 1.5}, "at most 1"),
        ({"patience": 0}, "patience is 0: give a whole number of at least 1"),
        ({"finetune_validations": 0}, "finetune_validations is 0"),
    ],
)
def test_arguments_out_of_range_are_rejected(arguments, message):
    with pytest.raises(InputError, match=message):
        Relevance(**{"lower_bound": 0.5, "metric": METRIC, **arguments})


def test_blocks_larger_than_the_sparsity_allows_are_refused():
    model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(8)])
    with pytest.raises(InputError, match=r"blocks of up to 16, and not even one can be .* 0\.1"):
        with_method(lambda: model, block_shape=(16, 1), sparsity=0.1)
