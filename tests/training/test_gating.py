"""Which gates a run has in which phase, and the sentences where that cannot be."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfsparsecap.errors import InputError
from tfsparsecap.gates import gated_layers, gates
from tfsparsecap.inference.finished_run import FinishedRun
from tfsparsecap.pruning import strip_pruning
from tfsparsecap.runs.run_folder import RunFolder
from tfsparsecap.settings.build import make_captioner
from tfsparsecap.settings.files import load_config
from tfsparsecap.summary.nonzeros import weight_counts
from tfsparsecap.training.callbacks import Validation
from tfsparsecap.training.gating import gate_captioner, gate_for_fine_tuning
from tfsparsecap.training.loop import masked_cross_entropy
from tfsparsecap.training.run import train_run

SCHEMED = ["model.encoder.trainable=false", "training.fine_tune.epochs=2", "pruning.sparsity=0.8"]
#: Cut behind its first block, which has all that is different from a MobileNet: branches, no biases.
INCEPTION = ["model.encoder.network=inception_v1", "model.encoder.layer=Mixed_3b"]
#: Steps of a phase, and what a method needs for so few: the papers' own rates come nowhere near the target.
STEPS = 5
OPTIONS = {"supermask_loss": ["pruning.paper=soft_attention", "pruning.land_at=0.6"]}


def parts(captioner):
    """How many layers of decoder and encoder are gated."""
    inside = {id(layer) for layer in captioner.encoder._flatten_layers()}
    layers = gated_layers(captioner)
    in_encoder = sum(id(layer) in inside for layer in layers)
    return len(layers) - in_encoder, in_encoder


@pytest.mark.parametrize(
    ("scheme", "first", "then"),
    [("A", (8, 7), (8, 7)), ("B", (0, 0), (8, 7)), ("C", (8, 0), (8, 7)), ("false", (8, 0), (8, 0))],
)
def test_the_schemes_gate_what_they_are_to(scheme, first, then, tiny_settings):
    config = load_config(None, [*tiny_settings, *SCHEMED, f"pruning.encoder={scheme}"])
    captioner = make_captioner(config, 12)
    gate_captioner(captioner, config, 10)
    assert parts(captioner) == first
    assert not captioner.encoder.trainable
    captioner.encoder.trainable = True
    gate_for_fine_tuning(captioner, config, 10, restored=True)
    assert parts(captioner) == then


@pytest.fixture(scope="module")
def with_inception(tiny_settings):
    """A captioner and its weights."""
    keras.utils.set_random_seed(3)
    captioner = make_captioner(load_config(None, [*tiny_settings, *SCHEMED, *INCEPTION]), 12)
    return captioner, captioner.get_weights()


@pytest.fixture
def captioner(with_inception):
    """The same one each time, as it was made: making another takes longer than training it."""
    captioner, weights = with_inception
    strip_pruning(captioner)
    captioner.encoder.trainable = False
    captioner.set_weights(weights)
    return captioner


@pytest.fixture
def configured(tiny_settings):
    def get(scheme, method):
        more = [f"pruning.encoder={scheme}", f"pruning.method={method}", *OPTIONS.get(method, [])]
        config = load_config(None, [*tiny_settings, *SCHEMED, *INCEPTION, *more])
        return config

    return get


def trainer(captioner):
    """A function that takes steps. They are not compiled, which would take longer than they do."""
    random = np.random.default_rng(5)
    words = random.integers(3, 12, (3, 4)).astype(np.int32)
    inputs = {"image": random.integers(0, 256, (3, 32, 32, 3)).astype(np.uint8), "tokens": words[:, :-1]}
    optimizer = captioner.pruning.wrap(keras.optimizers.SGD(0.1))

    def take(steps):
        for _ in range(steps):
            with tf.GradientTape() as tape:
                logits = captioner(inputs, training=True)
                loss = masked_cross_entropy(logits, words[:, 1:], captioner.pad_id) / 9.0
            variables = captioner.trainable_variables
            optimizer.apply(tape.gradient(loss, [variable.value for variable in variables]), variables)

    return take


def values(captioner):
    """Weights of decoder and encoder as they are behind the gates, by their paths."""
    of_gates = {id(variable) for gate in gates(captioner) for variable in gate.variables}
    inside = {id(variable) for variable in captioner.encoder.variables}
    found = ({}, {})
    for variable in captioner.variables:
        if id(variable) not in of_gates:
            found[id(variable) in inside][variable.path] = np.array(variable)
    return found


def masks(captioner):
    """Which weights the gates of decoder and encoder let through, by the weights' paths."""
    inside, found = {id(layer) for layer in captioner.encoder._flatten_layers()}, ({}, {})
    for layer in gated_layers(captioner):
        for name, gate in layer.gate_of.items():
            weight = layer.stored_weight(name)
            opened = np.reshape(np.asarray(gate.logits) > 0, weight.shape)
            found[id(layer) in inside][weight.path] = opened
    return found


def closed(*parts):
    """Share of the weights that masks, or zeros, remove."""
    arrays = [array for part in parts for array in part.values()]
    return 1 - sum(map(np.count_nonzero, arrays)) / sum(array.size for array in arrays)


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    for path, array in expected.items():
        np.testing.assert_array_equal(found[path], array, err_msg=path)


def assert_learnt(before, now, opened):
    """Weights that are let through have moved, but for those that lead nowhere any more."""
    moved = [(before[path] != now[path])[mask] for path, mask in opened.items()]
    assert np.concatenate(moved).mean() > 0.5


def kernels(captioner):
    """Paths of the weights of decoder and encoder that gates belong on, by what Keras calls them."""
    decoder, encoder = values(captioner)
    names = ("kernel", "embeddings")
    return tuple({path for path in part if path.endswith(names)} for part in (decoder, encoder))


def assert_stripped_to(captioner, sparsity):
    """Without its gates the captioner has that share of zeros; gives the kernels of decoder and encoder."""
    strip_pruning(captioner)
    assert not gates(captioner)
    left = tuple(
        {path: part[path] for path in paths}
        for part, paths in zip(values(captioner), kernels(captioner), strict=True)
    )
    assert closed(*left) == pytest.approx(sparsity, abs=5e-3)
    # What a run's scores say of it is of both.
    assert weight_counts(captioner, with_encoder=True)["sparsity"] == pytest.approx(closed(*left), abs=1e-9)
    return left


@pytest.mark.parametrize("method", ["supermask", "supermask_loss", "gradual", "magnitude"])
def test_in_scheme_a_frozen_weights_get_masks_and_in_fine_tuning_these_stay(method, captioner, configured):
    config, before = configured("A", method), values(captioner)
    expected = kernels(captioner)
    gate_captioner(captioner, config, STEPS)
    assert tuple(map(set, masks(captioner))) == expected and len(expected[1]) == 9
    take = trainer(captioner)
    take(2)
    if method == "supermask_loss":
        # By the captioner's loss each goes its own way; by that of the sparsity alone all would go the same.
        assert all(np.unique(gate.logits).size > 10 for gate in gates(captioner.encoder))
    take(STEPS - 2)
    decoder, encoder = values(captioner)
    assert_equal(encoder, before[1])
    chosen = masks(captioner)
    assert_learnt(before[0], decoder, chosen[0])
    assert closed(*chosen) == pytest.approx(0.8, abs=5e-3) and closed(chosen[1]) > 0.3

    captioner.encoder.trainable = True
    gate_for_fine_tuning(captioner, config, STEPS)
    trainer(captioner)(2)
    for part, mask in zip(masks(captioner), chosen, strict=True):
        assert_equal(part, mask)
    assert_learnt(encoder, values(captioner)[1], chosen[1])
    for part, mask in zip(assert_stripped_to(captioner, 0.8), chosen, strict=True):
        assert_equal({path: array != 0 for path, array in part.items()}, mask)


@pytest.mark.parametrize("method", ["supermask", "supermask_loss", "magnitude"])
def test_in_scheme_b_nothing_is_pruned_and_then_both_are(method, captioner, configured):
    config, before = configured("B", method), values(captioner)
    expected = kernels(captioner)
    gate_captioner(captioner, config, STEPS)
    assert not gates(captioner) and not hasattr(captioner, "pruning")

    captioner.encoder.trainable = True
    gate_for_fine_tuning(captioner, config, STEPS)
    assert tuple(map(set, masks(captioner))) == expected
    trainer(captioner)(STEPS)
    chosen = masks(captioner)
    for old, now, opened in zip(before, values(captioner), chosen, strict=True):
        assert_learnt(old, now, opened)
    assert all(closed(part) > 0.3 for part in chosen)
    assert_stripped_to(captioner, 0.8)
    # Shifts and means of batch normalisation begin at 0, and learn without a mask.
    free = {path: array for path, array in values(captioner)[1].items() if path not in expected[1]}
    assert len(free) == 3 * 9 and closed(free) < 0.3


@pytest.mark.parametrize("method", ["supermask", "supermask_loss", "gradual"])
def test_in_scheme_c_the_decoders_mask_stays_while_the_encoder_is_pruned(method, captioner, configured):
    config, before = configured("C", method), values(captioner)
    expected = kernels(captioner)
    gate_captioner(captioner, config, STEPS)
    assert tuple(map(set, masks(captioner))) == (expected[0], set())
    trainer(captioner)(STEPS)
    decoder, encoder = values(captioner)
    assert_equal(encoder, before[1])
    (chosen, _) = masks(captioner)
    assert closed(chosen) == pytest.approx(0.8, abs=5e-3)

    captioner.encoder.trainable = True
    gate_for_fine_tuning(captioner, config, STEPS)
    assert {path for path, *_ in captioner.pruning.classes()} == expected[1]
    trainer(captioner)(STEPS)
    found = masks(captioner)
    assert_equal(found[0], chosen)
    assert closed(found[1]) == pytest.approx(0.8, abs=5e-3)
    for old, now, opened in zip((decoder, encoder), values(captioner), found, strict=True):
        assert_learnt(old, now, opened)
    left, _ = assert_stripped_to(captioner, 0.8)
    assert_equal({path: array != 0 for path, array in left.items()}, chosen)


def share_of_zeros(layers):
    kernels = [np.asarray(w) for layer in layers for w in layer.weights if len(w.shape) >= 2]
    return 1 - sum(map(np.count_nonzero, kernels)) / sum(kernel.size for kernel in kernels)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "method"),
    [("A", "supermask"), ("B", "gradual"), ("C", "magnitude")],
)
def test_schemes_land_in_encoder_and_decoder_and_after_a_stop(scheme, method, tiny_settings, tmp_path):
    settings = [*tiny_settings, *SCHEMED, f"pruning.encoder={scheme}", f"pruning.method={method}"]
    settings += ["model.encoder.layer=conv_pw_1_relu", "data.max_length=4", "training.batch_size=50"]
    config = load_config(None, [*settings, "training.validation_images=0"])
    said = []
    scores = train_run(config, runs=tmp_path, verbose=0, say=said.append)
    assert scores["sparsity"] == pytest.approx(0.8, abs=5e-3)
    captioner = FinishedRun.load(tmp_path / config.name).captioner
    inside = captioner.encoder.backbone.layers
    assert share_of_zeros(inside) > 0.3
    if scheme == "C":
        assert share_of_zeros(inside) == pytest.approx(0.8, abs=6e-3)

    # As if it had been stopped in the middle of fine-tuning: gone on with, it ends with the same weights.
    folder = RunFolder(tmp_path / config.name)
    folder.checkpoint(4).unlink()
    folder.model.unlink()
    train_run(config, resume=True, runs=tmp_path, verbose=0, say=said.append)
    assert "going on after epoch 3" in said
    again = FinishedRun.load(folder.path).captioner
    for own, other in zip(again.get_weights(), captioner.get_weights(), strict=True):
        np.testing.assert_array_equal(own, other)


def weights_are_those_of(checkpoint, captioner):
    """Whether weights that are not zero are those of a checkpoint, in which they lie behind gates."""
    with np.load(checkpoint, allow_pickle=False) as file:
        stored = [
            file[key]
            for key in file.files
            if key.startswith("model/") and not key.endswith(("logits", "state"))
        ]
    pairs = list(zip(captioner.get_weights(), stored, strict=True))
    return all(np.array_equal(own, np.where(own == 0, 0, other)) for own, other in pairs)


@pytest.fixture
def without_compiling():
    """For runs of few steps, in which compiling takes most of the time."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.mark.usefixtures("without_compiling")
@pytest.mark.parametrize(("scheme", "first"), [("A", 0.1), ("C", 0.9)])
def test_the_best_epoch_of_fine_tuning_is_taken_after_a_stop_in_it(
    scheme, first, tiny_settings, tmp_path, monkeypatch
):
    # In scheme C the first phase ends with a better score, but not with what was asked for: a sparse encoder.
    scores = [first, 0.5, 0.3]

    def validate(self, epoch, logs=None):
        logs["validation_CIDEr"] = scores[epoch]

    monkeypatch.setattr(Validation, "on_epoch_end", validate)
    settings = [*tiny_settings, *SCHEMED, f"pruning.encoder={scheme}", "pruning.method=magnitude"]
    settings += ["training.epochs=1", "training.batch_size=100", "data.max_length=4"]
    settings += ["training.restore_best=true", f"data.cache_folder={tmp_path / 'cache'}"]
    config = load_config(None, settings)
    said = []
    train_run(config, runs=tmp_path, verbose=0, say=said.append)
    folder = RunFolder(tmp_path / config.name)
    folder.checkpoint(3).unlink()  # as if it had been stopped in its last epoch
    folder.model.unlink()
    train_run(config, resume=True, runs=tmp_path, verbose=0, say=said.append)
    assert "going on after epoch 2" in said
    assert said.count("taking the weights of epoch 2, the best on validation") == 2
    captioner = FinishedRun.load(folder.path).captioner
    assert weights_are_those_of(folder.checkpoint(2), captioner)
    assert not weights_are_those_of(folder.checkpoint(3), captioner)


def test_gates_go_on_the_decoder_and_on_the_encoder_only_when_asked(tiny_settings):
    from tfsparsecap.gates import gated_layers

    def gated(*more):
        config = load_config(None, [*tiny_settings, *more])
        captioner = make_captioner(config, 12)
        gate_captioner(captioner, config, 10)
        assert captioner.encoder.trainable
        inside = {id(layer) for layer in captioner.encoder._flatten_layers()}
        layers = gated_layers(captioner)
        return len(layers), sum(id(layer) in inside for layer in layers)

    count, in_encoder = gated()
    assert count >= 5 and in_encoder == 0
    assert gated("pruning.encoder=true")[1] > 0
    config = load_config(None, [*tiny_settings, "pruning=null"])
    captioner = make_captioner(config, 12)
    gate_captioner(captioner, config, 10)
    assert not gated_layers(captioner)


def test_what_a_method_refuses_names_the_setting(tiny_settings):
    config = load_config(None, [*tiny_settings, "pruning.begin=0.9", "pruning.end=0.2"])
    with pytest.raises(InputError, match=r"pruning\.method=supermask: begin and end"):
        gate_captioner(make_captioner(config, 12), config, 10)


def test_an_encoder_that_learns_is_not_said_to_be_frozen(tiny_settings):
    for trainable, reason in (
        (True, "(asked for)"),
        (False, "it is not trainable"),
    ):
        settings = [*tiny_settings, f"model.encoder.trainable={str(trainable).lower()}"]
        config = load_config(None, settings)
        captioner = make_captioner(config, 12)
        gate_captioner(captioner, config, 10)
        assert captioner.encoder.trainable is trainable
        said = " ".join(captioner.pruning.describe().split())
        assert reason in said and "conv_pw_3" in said
        assert ("it is not trainable" in said) is not trainable
