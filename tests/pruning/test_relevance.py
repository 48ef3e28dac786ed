"""Relevance-based pruning and its baselines: updates against NumPy, pruning while a metric is good enough."""

import subprocess
import sys
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.errors import InputError
from tfsparsecap.gates import gates
from tfsparsecap.pruning import L1Pruning, L2Pruning, Relevance, prune, strip_pruning

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(16, 8)).astype("float32")
# Far from what the model says, so that gradients are of all sizes and relevance differs.
Y = (10 * RANDOM.normal(size=(16, 3))).astype("float32")
METRIC = "val_accuracy"


def dense():
    keras.utils.set_random_seed(4)
    layers = [keras.layers.Dense(6, bias_initializer="ones"), keras.layers.Dense(3, bias_initializer="ones")]
    return keras.Sequential([keras.Input((8,)), *layers])


def with_method(make=dense, cls=Relevance, *, optimizer=None, compiled=True, **options):
    options = {"lower_bound": 0.5, "metric": METRIC, **options}
    model = prune(make(), cls(**options))
    model.compile(optimizer or keras.optimizers.SGD(0.01), "mse", run_eagerly=not compiled)
    return model


def scripted(**options):
    """For tests of what `on_validation_end` does, in which compiling would take most of the time."""
    return with_method(compiled=False, **options)


def stored(model):
    return [np.array(weight) for weight in model.pruning.weights]


def masks(model):
    return [np.asarray(gate.logits) > 0 for gate in model.pruning.gates]


def hear(model, score):
    return model.pruning.on_validation_end({"loss": 1.0, METRIC: score})


def gradients_by_hand(weights, x=X, y=Y):
    """Of the mean squared error of two linear layers: kernel, bias, kernel, bias."""
    first, first_bias, second, second_bias = weights
    hidden = x @ first + first_bias
    of_outputs = 2 * (hidden @ second + second_bias - y) / y.size
    of_hidden = of_outputs @ second.T
    return [x.T @ of_hidden, of_hidden.sum(0), hidden.T @ of_outputs, of_outputs.sum(0)]


SHRINKING = {
    Relevance: lambda w, g, rate: w - rate * np.exp(-np.abs(g)) * w,
    L2Pruning: lambda w, g, rate: w - rate * w,
    L1Pruning: lambda w, g, rate: np.where(np.abs(w) <= rate, 0.0, w - rate * np.sign(w)),
}


@pytest.mark.parametrize("cls", SHRINKING)
def test_a_step_is_the_one_of_equation_7(cls):
    model = with_method(cls=cls, weight_decay=0.1)
    before = [np.array(variable) for variable in model.trainable_variables]
    gradients = gradients_by_hand(before)
    assert max(abs(gradient).max() for gradient in gradients) > 1 > np.median(abs(gradients[0]))
    model.train_on_batch(X, Y)
    for own, weight, gradient in zip(model.trainable_variables, before, gradients, strict=True):
        # Biases never shrink.
        shrunk = SHRINKING[cls](weight, gradient, 0.1) if weight.ndim == 2 else weight
        np.testing.assert_allclose(own, shrunk - 0.01 * gradient, rtol=1e-5, atol=1e-6)


def test_l1_stops_at_zero():
    model = with_method(cls=L1Pruning, optimizer=keras.optimizers.SGD(0.0), weight_decay=0.3)
    before = stored(model)
    model.train_on_batch(X, Y)
    assert any((np.abs(weight) < 0.3).any() and (np.abs(weight) > 0.3).any() for weight in before)
    for weight, now in zip(before, stored(model), strict=True):
        np.testing.assert_array_equal(now == 0, np.abs(weight) <= 0.3)
        assert (np.sign(now) == np.sign(weight))[now != 0].all()


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda: keras.optimizers.AdamW(0.01, weight_decay=0.1),
        lambda: keras.optimizers.SGD(0.01, momentum=0.9, global_clipnorm=0.1),
        lambda: keras.optimizers.SGD(0.01, loss_scale_factor=64.0),
        lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.01)),
    ],
    ids=["adam", "clipped", "scaled", "scaled from outside"],
)
def test_any_optimizer_moves_weights_as_ever_and_they_shrink_by_the_losss_own_gradient(optimizer):
    stock, model = dense(), with_method(optimizer=optimizer(), weight_decay=1e-3)
    stock.compile(optimizer(), "mse")
    before = [np.array(variable) for variable in stock.trainable_variables]
    for one in (stock, model):
        one.train_on_batch(X, Y)
    for own, twin, weight, gradient in zip(
        model.trainable_variables, stock.trainable_variables, before, gradients_by_hand(before), strict=True
    ):
        shrinks = 1e-3 * np.exp(-np.abs(gradient)) * weight if weight.ndim == 2 else 0.0
        # AdamW's own decay, 1e-3 of the weight, comes after and sees it a thousandth smaller.
        np.testing.assert_allclose(own, np.array(twin) - shrinks, rtol=1e-5, atol=2e-6)


def test_words_that_are_not_in_the_batch_shrink_as_irrelevant_ones():
    def embedded():
        keras.utils.set_random_seed(3)
        table = keras.layers.Embedding(5, 4, embeddings_initializer="random_normal")
        return keras.Sequential([keras.Input((2,)), table, keras.layers.Flatten()])

    model = with_method(embedded, weight_decay=0.1)
    (table,) = stored(model)
    words, targets = np.array([[1, 3], [3, 3], [1, 4]]), 5 * RANDOM.normal(size=(3, 8)).astype("float32")
    model.train_on_batch(words, targets)
    # By hand: each place gives its word 2 (e - t) / n.
    gradient = np.zeros_like(table)
    np.add.at(
        gradient,
        words.ravel(),
        (2 * (table[words].reshape(3, 8) - targets) / targets.size).reshape(-1, 4),
    )
    expected = table - 0.1 * np.exp(-np.abs(gradient)) * table - 0.01 * gradient
    np.testing.assert_allclose(stored(model)[0], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(stored(model)[0][[0, 2]], 0.9 * table[[0, 2]], rtol=1e-6)


def test_sparse_gradients_are_added_up_and_missing_ones_shrink_nothing():
    model = with_method(weight_decay=0.1)
    first, second = model.pruning.weights
    before = stored(model)
    rows = tf.constant(RANDOM.normal(size=(3, 6)), tf.float32)
    sparse = tf.IndexedSlices(rows, tf.constant([2, 5, 2]), tf.constant([8, 6]))
    model.optimizer.apply([sparse], [first])
    gradient = np.zeros((8, 6), "float32")
    np.add.at(gradient, [2, 5, 2], rows.numpy())
    expected = before[0] - 0.1 * np.exp(-np.abs(gradient)) * before[0] - 0.01 * gradient
    np.testing.assert_allclose(first, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(second, before[1])


def test_what_has_no_gates_never_shrinks():
    def normalised():
        layers = [keras.layers.Dense(6, bias_initializer="ones"), keras.layers.BatchNormalization()]
        return keras.Sequential([keras.Input((8,)), *layers, keras.layers.Dense(3, name="free")])

    model = prune(normalised(), Relevance(lower_bound=0.5, metric=METRIC, weight_decay=0.5), skip="free")
    model.compile(keras.optimizers.SGD(0.0), "mse")
    before = [np.array(variable) for variable in model.trainable_variables]
    model.train_on_batch(X, Y)
    kernel, *others = zip(model.trainable_variables, before, strict=True)
    np.testing.assert_allclose(np.abs(kernel[0]) < np.abs(kernel[1]), True)
    assert len(others) == 5
    for own, value in others:
        np.testing.assert_array_equal(own, value)


@pytest.mark.parametrize("block", [(1, 1), (2, 1)])
def test_exactly_the_smallest_of_those_that_are_left_go(block):
    model = with_method(pruning_percentage=0.25, block_shape=block, weight_decay=0.0)

    kept = np.ones(66 // block[0], bool)
    for _ in range(3):
        assert not hear(model, 0.6)
        model.train_on_batch(X, Y)
        blocks = [np.abs(weight).reshape(-1, block[0], weight.shape[1]) for weight in stored(model)]
        now = np.concatenate([sizes.mean(1).ravel() for sizes in blocks])
        closed = (66 - kept.sum() * block[0]) + round(0.25 * kept.sum() * block[0])
        order = np.argsort(np.where(kept, now, -1.0))
        kept = np.ones_like(kept)
        kept[order[: closed // block[0]]] = False
        np.testing.assert_array_equal(np.concatenate([mask.ravel() for mask in masks(model)]), kept)
        # Nothing more goes until the next validation.
        model.train_on_batch(X, Y)
        np.testing.assert_array_equal(np.concatenate([mask.ravel() for mask in masks(model)]), kept)


def test_a_closed_gate_stays_closed_though_others_reach_zero():
    model = scripted(pruning_percentage=0.1, optimizer=keras.optimizers.SGD(0.0), cls=L2Pruning)
    hear(model, 1.0)
    model.train_on_batch(X, Y)
    closed = [~mask for mask in masks(model)]
    assert sum(one.sum() for one in closed) == 7
    for weight in model.pruning.weights:
        weight.assign(tf.zeros_like(weight))
    hear(model, 1.0)
    model.train_on_batch(X, Y)
    assert all((~now | ~before).all() for now, before in zip(masks(model), closed, strict=True))


def test_nothing_goes_below_the_bound_or_without_a_score_and_never_more_than_the_cap():
    model = scripted(sparsity=0.3, pruning_percentage=0.2)
    seen = []
    for score in (0.4, None, 0.5, 0.4, None, 0.7):
        if score is not None:
            hear(model, score)
        else:
            model.pruning.on_validation_end({"loss": 0.1})
        model.train_on_batch(X, Y)
        seen.append(float(model.pruning.current_sparsity()))
    assert seen == pytest.approx([0, 0, 13 / 66, 13 / 66, 13 / 66, 19 / 66])
    # Met at the cap: nothing more to prune, and nothing shrinks any more.
    hear(model, 0.6)
    assert float(model.pruning.current_weight_decay()) == 0.0
    assert model.pruning.target == pytest.approx(19 / 66)


def test_lambda_falls_exponentially_between_validations_and_starts_anew_when_weights_go():
    model = with_method(weight_decay=0.08, decay=0.25, patience=9)

    def rates(steps):
        seen = []
        for _ in range(steps):
            seen.append(float(model.pruning.current_weight_decay()))
            model.train_on_batch(X, Y)
        return seen

    # Nobody knows yet how far apart validations are.
    assert rates(4) == pytest.approx([0.08] * 4)
    hear(model, 0.1)
    assert rates(4) == pytest.approx([0.08 * 0.25 ** (step / 4) for step in range(4, 8)])
    hear(model, 0.9)
    # The first step is taken before the weights go.
    assert rates(4) == pytest.approx([0.08 * 0.25**2] + [0.08 * 0.25 ** (step / 4) for step in range(3)])
    hear(model, 0.1)
    assert rates(2) == pytest.approx([0.08 * 0.25 ** (step / 4) for step in (3, 4)])
    hear(model, 0.1)  # two steps since the last validation
    assert rates(2) == pytest.approx([0.08 * 0.25 ** (step / 2) for step in (5, 6)])


def test_it_goes_back_to_the_sparsest_state_that_met_the_bound_and_fine_tunes_that():
    model = scripted(pruning_percentage=0.2, patience=2, finetune_validations=3)
    model.train_on_batch(X, Y)
    hear(model, 0.6)
    model.train_on_batch(X, Y)
    hear(model, 0.55)
    best, best_masks = model.get_weights(), masks(model)
    for score in (0.4, 0.3):
        model.train_on_batch(X, Y)
        assert float(model.pruning.current_sparsity()) > 0.3
        assert not hear(model, score)
    for own, value in zip(model.get_weights(), best, strict=True):
        np.testing.assert_array_equal(own, value)
    assert 0.19 < float(model.pruning.current_sparsity()) < 0.21
    # Fine-tuning: nothing shrinks, nothing goes.
    before = [np.array(variable) for variable in model.trainable_variables]
    first, second = masks(model)
    opened = [first, np.ones(6), second, np.ones(3)]
    gradients = gradients_by_hand([weight * mask for weight, mask in zip(before, opened, strict=True)])
    model.train_on_batch(X, Y)
    for own, weight, gradient, mask in zip(model.trainable_variables, before, gradients, opened, strict=True):
        np.testing.assert_allclose(own, weight - 0.01 * gradient * mask, rtol=1e-5, atol=1e-6)
    assert [hear(model, score) for score in (0.4, 0.7)] == [False, False]
    tuned = model.get_weights()
    model.train_on_batch(X, Y)
    assert not model.pruning.finished
    # The last one misses the bound: what was tuned until the one before stays.
    assert hear(model, 0.2)
    assert model.pruning.finished
    for own, value in zip(model.get_weights(), tuned, strict=True):
        np.testing.assert_array_equal(own, value)
    for mask, value in zip(masks(model), best_masks, strict=True):
        np.testing.assert_array_equal(mask, value)
    assert not hear(model, 0.9)  # said once
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        strip_pruning(model)


def test_fine_tuning_keeps_the_better_of_what_met_the_bound():
    model = scripted(sparsity=0.1, pruning_percentage=0.2, finetune_validations=3)
    for score in (0.6, 0.6):
        hear(model, score)
        model.train_on_batch(X, Y)
    hear(model, 0.7)
    better = model.get_weights()
    model.train_on_batch(X, Y)
    assert not hear(model, 0.65)
    model.train_on_batch(X, Y)
    assert hear(model, 0.4)
    for own, value in zip(model.get_weights(), better, strict=True):
        np.testing.assert_array_equal(own, value)


def test_a_bound_that_is_never_met_is_said_and_leaves_the_model_dense():
    model = scripted(lower_bound=0.9, patience=2)
    weights = None
    # As long as the metric gets better the model is still learning.
    for score, stops in ((0.1, False), (0.3, False), (0.2, False), (0.4, False), (0.4, False), (0.3, True)):
        model.train_on_batch(X, Y)
        weights = model.get_weights()
        if stops:
            with pytest.warns(UserWarning, match=r"val_accuracy never met 0.9 \(0.4 was the best\)"):
                assert hear(model, score)
        else:
            assert not hear(model, score)
    for own, value in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(own, value)
    assert model.pruning.finished and model.pruning.target is None
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # it was said
        strip_pruning(model)


def test_no_number_is_a_miss_and_a_dense_end_is_said():
    model = scripted(patience=2)
    hear(model, 0.6)
    model.train_on_batch(X, Y)
    assert not hear(model, float("nan"))
    assert float(model.pruning.current_weight_decay()) > 0.0
    with pytest.warns(UserWarning, match="as soon as weights had gone, so the model is dense"):
        hear(model, float("nan"))
    assert float(model.pruning.current_weight_decay()) == 0.0
    assert float(model.pruning.current_sparsity()) == 0.0


@pytest.mark.parametrize(
    ("metric", "mode", "score"),
    [("val_loss", "auto", 0.4), ("val_mean_absolute_error", "auto", 0.4), ("val_x", "min", 0.5)],
)
def test_losses_and_errors_are_better_when_low(metric, mode, score):
    model = scripted(metric=metric, mode=mode, patience=1)
    model.pruning.on_validation_end({metric: 0.6})
    model.train_on_batch(X, Y)
    assert float(model.pruning.current_sparsity()) == 0.0
    model.pruning.on_validation_end({metric: score})
    model.train_on_batch(X, Y)
    assert float(model.pruning.current_sparsity()) > 0.0


@pytest.mark.parametrize("metric", ["val_accuracy", "validation_CIDEr", "validation_BLEU-4", "val_lossless"])
def test_scores_are_better_when_high(metric):
    assert Relevance(lower_bound=0.5, metric=metric).sign == 1.0


def play(model, scores):
    for score in scores:
        for _ in range(3):
            model.train_on_batch(X, Y)
        hear(model, score)


@pytest.mark.parametrize("cut", [2, 6])
def test_a_training_that_goes_on_from_a_file_ends_alike(tmp_path, cut):
    scores = [0.3, 0.6, 0.7, 0.4, 0.6, 0.3, 0.3, 0.6, 0.7]
    options = {"patience": 2, "pruning_percentage": 0.3, "cls": L1Pruning, "weight_decay": 0.01}
    whole = scripted(optimizer=keras.optimizers.Adam(0.02), **options)
    play(whole, scores)
    model = scripted(optimizer=keras.optimizers.Adam(0.02), **options)
    play(model, scores[:cut])
    model.save(tmp_path / "pruned.keras")
    again = keras.models.load_model(tmp_path / "pruned.keras")
    assert type(again.pruning) is L1Pruning
    assert again.pruning.get_config() == model.pruning.get_config()
    play(again, scores[cut:])
    for own, value in zip(again.get_weights(), whole.get_weights(), strict=True):
        np.testing.assert_allclose(own, value, rtol=1e-5, atol=1e-6)
    for own, value in zip(again.pruning.variables, whole.pruning.variables, strict=True):
        np.testing.assert_allclose(own, value, rtol=1e-5, atol=1e-6)
    # Two prunings lasted, the third did not.
    assert float(again.pruning.current_sparsity()) == pytest.approx(0.51, abs=0.01)
    assert all(gate.logits.shape for gate in gates(again))


@pytest.mark.filterwarnings("error::UserWarning")
def test_a_training_that_ends_while_all_is_well_is_stripped_as_it_is():
    model = scripted(pruning_percentage=0.5)
    play(model, [0.6, 0.6])
    weights = [np.array(layer.kernel) for layer in model.layers]
    strip_pruning(model)
    assert type(model.layers[0]) is keras.layers.Dense
    for layer, weight in zip(model.layers, weights, strict=True):
        np.testing.assert_array_equal(layer.kernel, weight)
    assert sum(np.count_nonzero(weight) for weight in weights) == 33


@pytest.mark.parametrize("end", [lambda model: play(model, [0.4]), lambda model: model.train_on_batch(X, Y)])
def test_a_training_that_ends_in_the_middle_of_pruning_is_stripped_to_what_met_the_bound(end):
    model = scripted(pruning_percentage=0.5)
    play(model, [0.6, 0.6])
    weights = [np.array(layer.kernel) for layer in model.layers]
    end(model)
    with pytest.warns(UserWarning, match=r"the last one that met it, with a sparsity of 50.0%"):
        strip_pruning(model)
    for layer, weight in zip(model.layers, weights, strict=True):
        np.testing.assert_array_equal(layer.kernel, weight)


def test_stripping_says_that_nothing_was_pruned():
    model = scripted()
    model.train_on_batch(X, Y)
    with pytest.warns(UserWarning, match="no validation gave val_accuracy"):
        strip_pruning(model)


def test_the_metric_must_be_among_the_names():
    method = Relevance(lower_bound=1.1, metric="validation_CIDEr")
    method.check_metric(["loss", "validation_CIDEr"])
    with pytest.raises(
        InputError, match="there will be loss, validation_CIDEr; did you mean 'validation_CIDEr'"
    ):
        Relevance(lower_bound=1.1, metric="validation_cider").check_metric(["validation_CIDEr", "loss"])
    with pytest.raises(InputError, match="no metric at all"):
        method.check_metric([])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sparsity": 1.0}, "below 1"),
        ({"mode": "x"}, "choose one of auto, max, min"),
        ({"lower_bound": float("nan")}, "a number that the metric can reach"),
        ({"pruning_percentage": 10}, "0.1 for 10 %"),
        ({"pruning_percentage": 0.0}, "0.1 for 10 %"),
        ({"weight_decay": 1.0}, "below 1"),
        ({"decay": 0.0}, "above 0"),
        ({"decay": 1.5}, "at most 1"),
        ({"patience": 0}, "patience must be at least 1"),
        ({"finetune_validations": 0}, "finetune_validations must be at least 1"),
    ],
)
def test_arguments_out_of_range_are_named(arguments, message):
    with pytest.raises(InputError, match=message):
        Relevance(**{"lower_bound": 0.5, "metric": METRIC, **arguments})


@pytest.mark.parametrize(("name", "cls"), [("relevance", Relevance), ("l1", L1Pruning), ("l2", L2Pruning)])
def test_each_has_a_name(name, cls):
    model = prune(dense(), name, sparsity=0.8, total_steps=100, lower_bound=0.5, metric=METRIC)
    assert type(model.pruning) is cls
    assert model.pruning.weight_decay == cls.default_weight_decay


MIRRORED = """
import keras, numpy as np, tensorflow as tf
cpu, = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
import tfsparsecap as sc

random = np.random.default_rng(0)
x, y = random.integers(0, 9, (32, 3)), 9 * random.normal(size=(32, 4)).astype("float32")

def trained(strategy, method):
    keras.utils.set_random_seed(1)
    with strategy.scope():
        layers = [keras.layers.Embedding(9, 5), keras.layers.LSTM(5), keras.layers.Dense(4)]
        model = keras.Sequential([keras.Input((3,)), *layers])
    sc.prune(model, method(lower_bound=1e9, metric="val_loss", weight_decay=0.01, decay=0.5))
    with strategy.scope():
        model.compile(keras.optimizers.SGD(0.1), "mse")
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(16)
    model.fit(data, validation_data=data, epochs=4, verbose=0)
    return model

one, two = tf.distribute.get_strategy(), tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
for method in (sc.Relevance, sc.L1Pruning):
    single, double = (trained(strategy, method) for strategy in (one, two))
    assert abs(float(double.pruning.current_sparsity()) - (1 - 0.9**3)) < 0.01
    for mine, theirs in zip(single.weights, double.weights, strict=True):
        first, second = (np.array(value) for value in theirs.value.values)
        np.testing.assert_array_equal(first, second)
        np.testing.assert_allclose(mine, first, rtol=1e-4, atol=1e-5)
print("alike")
"""


@pytest.mark.slow
def test_two_replicas_shrink_and_prune_as_one_device_does():
    done = subprocess.run([sys.executable, "-c", MIRRORED], capture_output=True, text=True, timeout=600)
    assert done.stdout.strip().endswith("alike"), done.stderr[-3000:]


def one_layer():
    return keras.Sequential([keras.Input((16,)), keras.layers.Dense(8)])


def test_a_block_goes_at_a_time_where_the_percentage_is_less():
    # 10 % of 128 weights are 13, and a block has 16.
    model = with_method(one_layer, compiled=False, block_shape=(16, 1), sparsity=0.5)
    seen = []
    for _ in range(6):
        hear(model, 0.6)
        model.train_on_batch(np.ones((4, 16)), np.ones((4, 8)))
        seen.append(float(model.pruning.current_sparsity()))
    assert seen == [0.125, 0.25, 0.375, 0.5, 0.5, 0.5]


def test_blocks_of_which_not_one_may_go_are_refused():
    with pytest.raises(InputError, match=r"blocks of up to 16, .* 0\.1 at most not one of them may go"):
        with_method(one_layer, block_shape=(16, 1), sparsity=0.1)
