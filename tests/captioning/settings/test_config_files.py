"""Settings from files and the command line, and the error for each mistake."""

import itertools
import re
from pathlib import Path

import pytest

from tfsparsecap.captioning.settings.config_files import config_file, differences, load_config, save_config
from tfsparsecap.captioning.settings.schema import Config
from tfsparsecap.errors import InputError


def sentence(overrides=(), path=None) -> str:
    with pytest.raises(InputError) as error:
        load_config(path, overrides)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_the_defaults_are_the_quickstart():
    assert load_config() == Config() == load_config("configs/quickstart.yaml")


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_the_published_settings_are_valid(cell):
    config = load_config(f"configs/flickr8k_soft_attention_{cell}.yaml")
    assert config.model.cell == cell and not config.model.encoder.trainable


def test_overrides_replace_the_file_and_null_disables_pruning(tmp_path):
    file = tmp_path / "x.yaml"
    file.write_text("name: 7\ntraining: {epochs: 5, learning_rate: 1e-4}\npruning: {sparsity: 0.5}\n")
    config = load_config(file, ["training.epochs=3", "pruning=null"])
    assert (config.name, config.training.epochs, config.training.learning_rate) == ("7", 3, 1e-4)
    assert config.pruning is None
    assert load_config(file, ["pruning.block_shape=[16,1]"]).pruning.block_shape == (16, 1)


def test_each_captioner_has_its_own_settings():
    model = load_config(None, ["model.kind=up_down", "model.rnn_size=144", "model.encoder=null"]).model
    assert (model.rnn_size, model.attention_size, model.encoder) == (144, 512, None)
    model = load_config(
        None, ["model={kind: object_relation_transformer, share_encoder_layers: [0, 0]}"]
    ).model
    assert model.share_encoder_layers == [0, 0] and model.hidden_size == 2048


def test_a_file_extends_another_one(tmp_path):
    (tmp_path / "lower").mkdir()
    (tmp_path / "base.yaml").write_text("training: {epochs: 5, batch_size: 7}\nmodel: {kind: up_down}\n")
    (tmp_path / "lower" / "one.yaml").write_text("extends: ../base.yaml\ntraining: {epochs: 6}\n")
    (tmp_path / "lower" / "two.yaml").write_text("extends: one.yaml\nmodel: {rnn_size: 3}\n")
    config = load_config(tmp_path / "lower" / "two.yaml", ["training.learning_rate=0.5"])
    assert (config.training.epochs, config.training.batch_size, config.training.learning_rate) == (6, 7, 0.5)
    assert (config.model.kind, config.model.rnn_size) == ("up_down", 3)
    assert "extends" not in save_config(config)
    (tmp_path / "base.yaml").write_text("model: {cell: gru, encoder: {width: 0.5}}\n")
    config = load_config(
        tmp_path / "lower" / "two.yaml", ["model.kind=object_relation_transformer", "model.size=8"]
    )
    assert (config.model.size, config.model.encoder.width) == (8, 0.5)
    (tmp_path / "base.yaml").write_text("extends: lower/two.yaml\n")
    assert "extends itself" in sentence(path=tmp_path / "lower" / "two.yaml")


@pytest.mark.parametrize(
    "given",
    [
        ["model.layers=4", "model.kind=object_relation_transformer", "model.size=64"],
        ["model.layers=4", "model={kind: object_relation_transformer}", "model.size=64"],
        ["model.layers=4", "model={kind: object_relation_transformer, size: 64}"],
    ],
)
def test_the_order_of_overrides_has_no_effect(given, tmp_path):
    (tmp_path / "a.yaml").write_text("model: {kind: up_down, rnn_size: 8}\n")
    for path in (None, tmp_path / "a.yaml"):
        configs = [load_config(path, order) for order in itertools.permutations(given)]
        assert configs[0].model.layers == 4 and configs[0].model.size == 64
        assert all(config == configs[0] for config in configs)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("learning_rate=1", r"unknown key learning_rate on .*; did you mean training\.learning_rate\?"),
        ("trainin.epochs=1", r"unknown key trainin on the command line; did you mean training\?"),
        ("model.encoder.weight=imagenet", r"did you mean model\.encoder\.weights\?"),
        ("x.y=1", "unknown key x on the command line; remove it"),
        ("a[9]=1", r"unknown key a\[9\]"),
        ("model.kind=up_down model.cell=gru", r"unknown key model\.cell on the command line"),
        ("model.kind=up_down model.rnn_sice=3", r"did you mean model\.rnn_size\?"),
        ("model.kind=updown", r"model\.kind on the command line is 'updown': did you mean up_down\?"),
        ("model.kind=3", r"model\.kind on the command line is '3': choose one of soft_attention, up_down"),
        ("model=3", "model on the command line is 3: it should be a section with keys and values"),
        ("training=3", "it should be a section with keys and values"),
        ("training.epochs=3 training=4", "training .* is 4: it should be a section with keys and values"),
        ("training.epochs=many", r"training\.epochs on the command line is 'many': it should be an integer"),
        ("training.epochs.a=1", r"training\.epochs .* is {'a': 1}: it should be an integer"),
        ("model.rnn_size=1" + 30 * "0", "model.rnn_size .* should be less than"),
        ("model.cell=rnn", r"model\.cell on the command line is 'rnn': it should be 'lstm' or 'gru'"),
        ("training.clip_norm=-1", "greater than 0"),
        ("pruning.sparsity=1", "less than 1"),
        ("training.learning_rate=1e400", r"learning_rate .* is inf: it should be a finite number"),
        ("pruning.block_shape=[16]", r"block_shape .* has too few values: it should be a list .* \[16,1\]$"),
        ("pruning.block_shape=16", r"block_shape .* is 16: it should be a list in brackets"),
        ("pruning.block_shape=[16,1", r"is not YAML: close all brackets"),
        ("data.batch_lengths=12", r"batch_lengths .* is 12: it should be a list in brackets"),
        ("model.kind=transformer model.encoder_heads=[4,0]", r"model\.encoder_heads\.1 .* is 0"),
        ("model.kind=transformer model.encoder_heads=many", "should be a list"),
        *(
            (f"name={name}", "name .* it should be letters, digits")
            for name in ("../x", "a/b", "''", ".x", "*a")
        ),
        *(
            (text, r"is not a setting: write section\.key=value")
            for text in ("epochs", "=3", "--epochs=3", "..=1")
        ),
        ("name=${oc.env:HOME}", "contains a reference at line 1: write the value itself"),
        ("training.teacher=['a${x']", "contains a reference"),
        ("name=" + 2000 * "[", "nested too deeply"),
        ("name=" + 70_000 * "x", "too long for a setting: write it into a file"),
        ("seed=1" + 5000 * "0", "a value of 5001 characters"),
        ('name="\\0"', "a character that is not text"),
        ("name={[1]:2}", "a key in brackets"),
    ],
)
def test_overrides_that_cannot_be_used_are_refused(overrides, message):
    text = sentence(overrides.split(" "))
    assert re.search(message, text) and len(text) < 1000


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "training:\n  epoch: 5\n",
            r"^unknown key training\.epoch in FILE; did you mean training\.epochs\?$",
        ),
        ("training: {epochs: many}", r"^training\.epochs in FILE is 'many': it should be an integer"),
        ("extends: FILE", "FILE extends itself through other files"),
        ("extends: absent.yaml", "no file .*absent.yaml: check the path, or give one of coco_good, "),
        ("extends: [a]", r"extends in FILE is \['a'\]: give the path of one YAML file"),
        ("a: [1,\nb: 2\n", "^FILE is not YAML at line 3"),
        ("- 1\n", "^FILE has no settings"),
        (b"\xff\xfe\x00\x81", "^FILE is not a YAML file"),
        ("[" * 100_000, "^FILE is too large for settings"),
        ("a: " + "[" * 2000, "^FILE contains lists or sections inside each other"),
        (
            "seed: 1\ndata: {folder: '${nothing}'}",
            "^FILE contains a reference at line 2: write the value itself$",
        ),
        ("<<: 3", "unknown key << in FILE"),
        ("? a", "unknown key a in FILE"),
    ],
)
def test_files_that_cannot_be_used_are_refused(content, message, tmp_path):
    file = tmp_path / "a.yaml"
    content = content.replace("FILE", str(file)) if isinstance(content, str) else content
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert re.search(message.replace("FILE", re.escape(str(file))), sentence(path=file))


def test_paths_that_cannot_be_opened_are_reported(tmp_path):
    (tmp_path / "broken.yaml").touch()
    text = sentence(path=tmp_path / "brokn.yaml")
    assert text.startswith("there is no file") and "did you mean" in text

    assert "is a folder" in sentence(path=tmp_path)
    study = "configs/studies/flickr8k.yaml"
    assert sentence(path=study).endswith(f"run it with python -m tfsparsecap.study --config {study}")
    (tmp_path / "loop.yaml").symlink_to(tmp_path / "loop.yaml")
    assert "cannot read" in sentence(path=tmp_path / "loop.yaml")
    assert "cannot read" in sentence(path=tmp_path / f"{'x' * 300}.yaml")
    assert "is not a path" in sentence(path=f"{tmp_path}/a\0b.yaml")


def test_settings_of_the_package_are_found_by_name_from_everywhere(tmp_path, monkeypatch):
    configs = Path(__file__).parents[3] / "configs"
    good = load_config(configs / "flickr8k_good.yaml")
    monkeypatch.chdir(tmp_path)
    for name in ("flickr8k_good", "flickr8k_good.yaml", "configs/flickr8k_good.yaml"):
        assert load_config(name) == good
    assert config_file("studies/scenes") == configs / "studies/scenes.yaml"
    (tmp_path / "deep").mkdir()
    Path("deep/mine.yaml").write_text("extends: flickr8k_good\nname: mine\n", encoding="utf-8")
    assert [key for key, *_ in differences(load_config("deep/mine.yaml"), good)] == ["name"]
    Path("flickr8k_good").write_text("name: own\n", encoding="utf-8")  # comes first
    assert load_config("flickr8k_good").name == "own"
    for absent in ("../configs/quickstart.yaml", "/flickr8k_good", "studies"):
        assert config_file(absent) == Path(absent)


def test_saved_settings_are_read_back_unchanged(tmp_path):
    config = load_config(None, ["pruning.begin=0.2", "data.train=50", "data.folder=été"])
    (tmp_path / "config.yaml").write_text(save_config(config), encoding="utf-8")
    assert load_config(tmp_path / "config.yaml") == config


def test_differences_contain_key_and_both_values():
    first, second = load_config(None, ["training.epochs=7"]), load_config(None, ["pruning=null"])
    changes = {key: values for key, *values in differences(first, second)}
    assert changes["training.epochs"] == [7, Config().training.epochs]
    assert changes["pruning.sparsity"] == [0.9, None] and "seed" not in changes


def test_another_encoder_replaces_the_settings_of_the_configurations(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text(
        "model: {rnn_size: 7, encoder: {width: 0.5, layer: conv_pw_11_relu, image_size: 96, weights: null,"
        " trainable: true}}"
    )
    config = load_config(file, ["model.encoder.network=tiny_vit_5m"])
    encoder = config.model.encoder
    assert (config.model.rnn_size, encoder.layer, encoder.image_size) == (7, None, 224)
    assert (encoder.weights, encoder.trainable) == ("imagenet", True)
    assert not load_config(None, ["model.encoder.network=tiny_vit_5m"]).model.encoder.trainable
    same = load_config(file, ["model.encoder.network=mobilenet_v1"]).model.encoder
    assert (same.width, same.image_size) == (0.5, 96)


def test_the_default_layer_depends_on_the_network(tmp_path):
    assert load_config().model.encoder.layer == "conv_pw_5_relu"
    inception = load_config(None, ["model.encoder.network=inception_v1"])
    assert (inception.model.encoder.layer, inception.model.encoder.image_size) == ("Mixed_4f", 224)
    named = load_config(None, ["model.encoder.network=inception_v1", "model.encoder.layer=Mixed_3c"])
    assert named.model.encoder.layer == "Mixed_3c"
    # Settings that were saved before the network could be chosen refer to a MobileNet.
    config_path = tmp_path / "config.yaml"
    config_path.write_text(save_config(inception))
    assert load_config(config_path) == inception
    config_path.write_text("model: {encoder: {width: 0.25, layer: conv_pw_11_relu, weights: imagenet}}\n")
    encoder = load_config(config_path).model.encoder
    assert (encoder.network, encoder.layer, encoder.weights) == (
        "mobilenet_v1",
        "conv_pw_11_relu",
        "imagenet",
    )
    assert "there is no network 'tiny_vit': did you mean tiny_vit_5m?" in sentence(
        ["model.encoder.network=tiny_vit"]
    )


def test_settings_of_another_captioner_are_given_in_any_order():
    settings = ["model.layers=4", "model.kind=transformer", "model.encoder_heads=[4,2,4,1]", "model.size=64"]
    for overrides in (settings, settings[::-1]):
        model = load_config("configs/flickr8k_soft_attention_lstm.yaml", overrides).model
        assert (model.kind, model.layers, model.size) == ("transformer", 4, 64)
        assert model.encoder_heads == [4, 2, 4, 1] and model.encoder.layer == "conv_pw_13_relu"
    related = load_config("configs/rtic/unpruned.yaml", ["model.kind=object_relation_transformer"]).model
    assert related.encoder.network == "ResNet101" and related.size == 512
    single = load_config("configs/rtic/unpruned.yaml", ["model.encoder_heads=5"]).model
    assert single.encoder_heads == [5] and single.layers == 6


def test_another_pruning_method_replaces_the_options_of_the_configurations():
    settings = ["pruning.method=frozen", "pruning.block_shape=[4,1]"]
    pruning = load_config("configs/everyday_small.yaml", settings).pruning
    assert (pruning.method, pruning.sparsity, pruning.block_shape, pruning.options) == (
        "frozen",
        0.95,
        (4, 1),
        {},
    )
    supermask = load_config("configs/everyday_small.yaml", ["pruning.method=supermask"]).pruning
    assert supermask.options == {"begin": 0.1, "end": 0.6, "minimum_density": 0.02}


def test_settings_that_went_are_read_if_they_had_no_effect(tmp_path):
    file = tmp_path / "config.yaml"
    file.write_text("name: old\ntraining: {first: null, feature_weight: 0.0, epochs: 3}\n")
    assert load_config(file).training.epochs == 3
    file.write_text("name: old\ntraining: {first: null, feature_weight: 2}\n")
    with pytest.raises(InputError, match=r"training\.feature_weight in .*yaml is a setting of an older"):
        load_config(file)
