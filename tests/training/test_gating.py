"""Which gates a run has in which phase, and the sentences where that cannot be."""

import numpy as np
import pytest

from tfsparsecap.errors import InputError
from tfsparsecap.gates import gated_layers
from tfsparsecap.training.callbacks import SaveEpoch
from tfsparsecap.training.config_files import load_config
from tfsparsecap.training.experiment import check_sections, make_captioner
from tfsparsecap.training.gating import gate_captioner, gate_for_fine_tuning
from tfsparsecap.training.run import train_run
from tfsparsecap.training.trained import Trained

SCHEMED = ["model.encoder.trainable=false", "training.fine_tune.epochs=2", "pruning.sparsity=0.8"]


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
    check_sections(config)
    captioner = make_captioner(config, 12)
    gate_captioner(captioner, config, 10)
    assert parts(captioner) == first
    assert not captioner.encoder.trainable
    captioner.encoder.trainable = True
    gate_for_fine_tuning(captioner, config, 10, restored=True)
    assert parts(captioner) == then


def share_of_zeros(layers):
    kernels = [np.asarray(w) for layer in layers for w in layer.weights if len(w.shape) >= 2]
    return 1 - sum(map(np.count_nonzero, kernels)) / sum(kernel.size for kernel in kernels)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "method"),
    [("A", "supermask"), ("B", "gradual"), ("C", "magnitude")],
)
def test_schemes_land_in_encoder_and_decoder_and_after_a_stop(
    scheme, method, tiny_settings, tmp_path, monkeypatch
):
    settings = [*tiny_settings, *SCHEMED, f"pruning.encoder={scheme}", f"pruning.method={method}"]
    config = load_config(None, [*settings, "training.validation_images=0"])
    scores = train_run(config, runs=tmp_path / "whole", verbose=0, say=lambda text: None)
    assert scores["sparsity"] == pytest.approx(0.8, abs=5e-3)
    captioner = Trained.load(tmp_path / "whole" / config.name).captioner
    inside = captioner.encoder.backbone.layers
    assert share_of_zeros(inside) > 0.3
    if scheme == "C":
        assert share_of_zeros(inside) == pytest.approx(0.8, abs=6e-3)

    # Stopped in the middle of fine-tuning and gone on with, it ends with the same weights.
    whole = SaveEpoch.on_epoch_end

    class Stopped(Exception):
        """Stands for the power cut."""

    def on_epoch_end(self, number, logs=None):
        whole(self, number, logs)
        if number + 1 == 3:
            raise Stopped

    with monkeypatch.context() as patched:
        patched.setattr(SaveEpoch, "on_epoch_end", on_epoch_end)
        with pytest.raises(Stopped):
            train_run(config, runs=tmp_path / "stopped", verbose=0, say=lambda text: None)
    train_run(config, resume=True, runs=tmp_path / "stopped", verbose=0, say=lambda text: None)
    again = Trained.load(tmp_path / "stopped" / config.name).captioner
    for own, other in zip(again.get_weights(), captioner.get_weights(), strict=True):
        np.testing.assert_array_equal(own, other)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["pruning.encoder=C", "pruning.method=snip"], "not for snip"),
        (
            ["pruning.encoder=A", "model.encoder.trainable=true"],
            r"frozen at first: set model\.encoder\.trainable",
        ),
        (["pruning.encoder=B", "training.fine_tune.epochs=0"], r"set training\.fine_tune\.epochs"),
        (["pruning.method=frozen"], r"set training\.start_from"),
        (["pruning.method=lottery", "pruning.rounds=0"], r"pruning\.rounds=0 starts from a trained run"),
        (["pruning.beginn=0.1"], r"did you mean pruning\.begin"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_read(settings, message, tiny_settings):
    config = load_config(None, [*tiny_settings, *SCHEMED, *settings])
    with pytest.raises(InputError, match=message):
        check_sections(config)
