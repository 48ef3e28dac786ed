"""python -m tfsparsecap.slim_captioner: a smaller run that trains, and one sentence for each mistake."""

import json

import numpy as np
import pytest

from tests.command_line import exit_code
from tfsparsecap import slim_captioner
from tfsparsecap.captioning.inference.finished_run import FinishedRun
from tfsparsecap.captioning.runs.run_folder import RunFolder
from tfsparsecap.captioning.settings.build import load_data, make_captioner, make_tokenizer
from tfsparsecap.captioning.settings.config_files import load_config
from tfsparsecap.captioning.training.other_runs import load_teachers
from tfsparsecap.captioning.training.train_run import train_run
from tfsparsecap.errors import InputError

SIZES = ["model.kind=transformer", "model.size=16", "model.hidden_size=32", "model.heads=4"]
SIZES += ["model.encoder_layers=1", "model.decoder_layers=3"]


@pytest.fixture
def whole(tiny_settings, tmp_path):
    """Folder of a finished run with a transformer with random weights."""
    return finished(tiny_settings, tmp_path, *SIZES)


def finished(tiny_settings, tmp_path, *more):
    settings = [
        setting
        for setting in tiny_settings
        if not setting.startswith(("model.rnn", "model.emb", "model.att"))
    ]
    settings += ["pruning=null", "model.encoder.trainable=false", "name=whole"]
    settings += ["training.validation_images=0", "training.epochs=1"]
    settings += ["training.batch_size=100", *more]
    config = load_config(None, [*settings, f"data.cache_folder={tmp_path / 'cache'}"])
    folder, tokenizer = RunFolder(tmp_path / "whole"), make_tokenizer(config, load_data(config))
    folder.create(config, tokenizer)
    make_captioner(config, tokenizer).save(folder.model)
    return folder.path


@pytest.mark.slow
@pytest.mark.usefixtures("quick_training")
def test_a_slimmed_run_is_fine_tuned_by_its_whole_run(whole, tmp_path, capsys):
    output = tmp_path / "slim"
    for number, message in ((4, "is 4, but the decoder in"), (3, "is 3, and the decoder in")):
        layers = ["--decoder-layers", number]
        assert f"--decoder-layers {message}" in sentence(capsys, whole, "--output", output, *layers)
    assert not output.exists()
    options = ["--encoder-width", "0.5", "--decoder-layers", "2", "--json"]
    assert slim_captioner.main([str(whole), "--output", str(output), *options]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["after"]["all"] < made["before"]["all"]
    assert made["after"]["image encoder"] == made["before"]["image encoder"]
    small = FinishedRun.load(output)
    assert small.captioner.count_params() == made["after"]["all"] and small.captioner.encoder_heads == [2]
    model, training = small.config.model, small.config.training
    assert (model.encoder_heads, model.encoder_hidden_size, model.decoder_layers) == ([2], [16], 2)
    assert (training.start_from, training.teacher, training.teacher_loss) == (
        str(output),
        [str(whole)],
        "proposed",
    )
    assert made["train"].endswith(f"--config {output / 'config.yaml'} --runs {tmp_path} name=slim_tuned")
    for wrong in ("model.decoder_layers=4", "model.size=32"):
        with pytest.raises(InputError, match=r"no transformer decoder of size .*teacher_loss=proposed needs"):
            load_teachers(load_config(output / "config.yaml", [wrong]), small.tokenizer, RunFolder(output))
    config = load_config(output / "config.yaml", ["name=tuned"])
    assert train_run(config, runs=tmp_path, verbose=0, report=str)["images"] == 4
    tuned = FinishedRun.load(tmp_path / "tuned").captioner
    first, last = (
        captioner.decoder_layers[0].attention.query.kernel for captioner in (small.captioner, tuned)
    )
    assert 0 < np.abs(np.array(first) - np.array(last)).max() < 0.2


@pytest.mark.slow
@pytest.mark.usefixtures("quick_training")
@pytest.mark.parametrize(
    "more",
    [
        [],
        [f"model.share_{part}_layers=[0,0,0]" for part in ("encoder", "decoder")]
        + [f"model.share_{part}_attention=kv" for part in ("encoder", "decoder")]
        + ["data.radix_base=8", "data.max_length=12"],
    ],
)
def test_an_object_relation_transformer_and_acort_are_slimmed(more, tiny_settings, tmp_path, capsys):
    settings = ["model.kind=object_relation_transformer", *SIZES[1:-2], "model.layers=3", *more]
    run = finished(tiny_settings, tmp_path, *settings)
    output = tmp_path / "slim"
    options = ["--encoder-width", "0.5", "--decoder-layers", "2", "--json"]
    assert slim_captioner.main([str(run), "--output", str(output), *options]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["after"]["all"] < made["before"]["all"]
    small = FinishedRun.load(output)
    assert small.captioner.count_params() == made["after"]["all"]
    assert small.captioner.depth == 2
    image = np.random.default_rng(0).integers(0, 256, (32, 32, 3), np.uint8)
    assert small.generate(image)


@pytest.mark.slow
def test_channels_of_the_image_encoder_are_removed_from_any_captioner(tiny_run, tmp_path, capsys):
    output = tmp_path / "slim"
    options = ["--encoder-channels", "0.6", "--encoder-budget", "parameters", "--encoder-criterion", "rtic"]
    assert slim_captioner.main([str(tiny_run), "--output", str(output), *options]) == 0
    assert "image encoder" in capsys.readouterr().out
    small, original = FinishedRun.load(output), FinishedRun.load(tiny_run)
    assert small.captioner.encoder.count_params() <= 0.6 * original.captioner.encoder.count_params()
    assert small.config.training.teacher_loss == "words"
    encoder = make_captioner(small.config, small.tokenizer).encoder
    images = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), np.uint8)
    np.testing.assert_allclose(encoder(images), small.captioner.encoder(images), atol=1e-5)
    RunFolder(output).encoder.write_bytes(b"no model")
    with pytest.raises(
        InputError, match=r"cannot read .*encoder\.keras .*: copy it again, or slim the run again"
    ):
        make_captioner(small.config, small.tokenizer)
    RunFolder(output).encoder.unlink()
    with pytest.raises(InputError, match=r"model\.encoder\.slimmed: there is no file .*encoder\.keras"):
        make_captioner(small.config, small.tokenizer)


def sentence(capsys, *argv):
    assert exit_code(slim_captioner.main, *argv) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    return line


@pytest.mark.slow
def test_mistakes_are_reported_and_nothing_is_written(tiny_run, tmp_path, capsys):
    output = ["--output", tmp_path / "new"]
    width = ["--encoder-width", "0.5"]
    assert "nothing to remove: give --encoder-channels" in sentence(capsys, tiny_run, *output)
    rtic = ["--encoder-criterion", "rtic", *width]
    assert "--encoder-criterion does nothing without" in sentence(capsys, tiny_run, *output, *rtic)
    assert "--encoder-width is 1.5" in sentence(capsys, tiny_run, *output, "--encoder-width", "1.5")
    channels = sentence(capsys, tiny_run, *output, "--encoder-channels", "0.01")
    assert "--encoder-channels: the share is 0.01, but" in channels and " or more" in channels
    assert "--decoder-layers is 0" in sentence(capsys, tiny_run, *output, "--decoder-layers", "0")
    assert f"{tiny_run} exists" in sentence(capsys, tiny_run, "--output", tiny_run, *width)
    assert "is not a run folder" in sentence(capsys, tmp_path / "absent", *output, *width)
    assert "model.kind=soft_attention, which has no" in sentence(capsys, tiny_run, *output, *width)
    assert not list(tmp_path.iterdir())
