"""Settings that are texts keep what was typed or saved."""

import inspect
import random
import typing

import pytest
from omegaconf import OmegaConf

from tfsparsecap.data import SOURCES
from tfsparsecap.errors import InputError
from tfsparsecap.settings.files import load_config, save_config
from tfsparsecap.settings.schema import Config
from tfsparsecap.settings.texts import text_keys, with_quoted_texts

# What some reader of YAML takes for a number, a date, a word or a mark.
UNUSUAL = [
    *("010", "1e5", "1E5", "2024_05_01", "2024-05-01", "1:30", "0x1F", "0b1", "0o7", ".5", "+1", "-0", "1_0"),
    *("on", "Off", "YES", "no", "y", "N", "true", "False", "nan", ".inf", "-.INF", "Infinity", ".NaN"),
    *(
        "my #1 photos",
        "#1",
        "a: b",
        "- a",
        "? a",
        "*a",
        "&a",
        "!a",
        "%a",
        "@a",
        "`a",
        "|",
        ">",
        ",",
        "=",
        "<<",
    ),
    *(
        "a #",
        "a:",
        "---",
        "...",
        "--- a",
        "C:\\new\\x",
        "it's",
        'a "b"',
        "été 😀",
        "a  b",
        99 * "ab cd "[:-1],
    ),
]
# Texts that can be in a file only.
CONTROL = [
    "",
    "~",
    "null",
    " a",
    "a ",
    "\ta\t",
    "a\nb",
    "\n",
    " \n a \n",
    "a\r\nb",
    "a\x85b",
    "a\u2028 b",
    "\ufeffa",
]


@pytest.mark.parametrize("text", UNUSUAL)
def test_a_text_on_the_command_line_is_kept(text):
    config = load_config(None, [f"data.folder={text}", f"training.teacher={text}", f"data.table= {text} "])
    assert (config.data.folder, config.training.teacher) == (text, [text])
    assert config.data.options == {"table": text}


def test_names_that_look_like_numbers_are_kept(tmp_path):
    (tmp_path / "a.yaml").write_text("name: 2024_05_01 # a comment\ndata: {folder: 010, table: 1e5}\n")
    config = load_config(tmp_path / "a.yaml")
    assert (config.name, config.data.folder, config.data.options["table"]) == ("2024_05_01", "010", "1e5")
    assert load_config(None, ["name=010"]).name == "010"
    assert load_config(None, ["data={folder: 010, table: 1:30}"]).data.folder == "010"
    assert load_config(None, ["training.teacher=[1e5, 'a', on]"]).training.teacher == ["1e5", "a", "on"]
    assert load_config(None, ["decoding.function_words=[on, off]"]).decoding.function_words == ["on", "off"]


@pytest.mark.parametrize("given", ["null", "~", "", " Null "])
def test_null_is_not_a_text(given):
    assert load_config(None, [f"data.folder={given}"]).data.folder is None
    assert load_config(None, ["data.folder='null'"]).data.folder == "null"


def test_quotes_and_other_types_are_yaml():
    assert load_config(None, ["data.folder='my #1 photos'"]).data.folder == "my #1 photos"
    assert load_config(None, ['data.folder="a\\tb"']).data.folder == "a\tb"
    config = load_config(None, ["seed=010", "data.train=1_0", "training.jit_compile=on"])
    assert (config.seed, config.data.options, config.training.jit_compile) == (8, {"train": 10}, True)


@pytest.mark.parametrize(
    "given", ["training.epochs=3 #4", "data.train=#1", "data.folder='a' #1", "a.b=[1] # c"]
)
def test_a_comment_on_the_command_line_is_refused(given):
    with pytest.raises(InputError, match="on the command line has a comment, which would be ignored"):
        load_config(None, [given])


@pytest.mark.parametrize("text", [*UNUSUAL, *CONTROL])
def test_saved_texts_are_read_back_exactly(text, tmp_path):
    config = Config(data={"folder": text, "augmentation": [text, {text: text}], "option": text})
    (tmp_path / "config.yaml").write_text(save_config(config), encoding="utf-8", newline="")
    assert load_config(tmp_path / "config.yaml") == config


def test_random_texts_are_read_back_exactly(tmp_path):
    generator = random.Random(0)
    for _ in range(30):
        texts = ["".join(generator.choices(" \n\t:#-'\"\\,[]{}1e.aé\x85\u2028\xa0", k=12)) for _ in range(20)]
        config = Config(data={"folder": texts[0], "augmentation": texts})
        (tmp_path / "config.yaml").write_text(save_config(config), encoding="utf-8", newline="")
        assert load_config(tmp_path / "config.yaml") == config


def test_ordinary_texts_are_saved_without_quotes():
    saved = save_config(Config(name="a1", data={"folder": "/data/a b"}))
    assert saved.startswith("name: a1\n") and "folder: /data/a b\n" in saved


def test_only_texts_get_quotes():
    text = "# first\nname: 010 # 1\nseed: 010\ndata:\n  folder: a\n   b\ntraining: {teacher: [1, 'é']}"
    quoted = '# first\nname: "010" # 1\nseed: 010\ndata:\n  folder: "a b"\n'
    assert with_quoted_texts(text) == quoted + "training: {teacher: [\"1\", 'é']}"
    assert OmegaConf.create(with_quoted_texts("")) == {}


def test_the_texts_among_the_options_of_data_sources_are_known():
    known = {key.removeprefix("data.") for key in text_keys() if key.startswith("data.")}
    for source in SOURCES.values():
        annotations = typing.get_type_hints(source)
        for name in inspect.signature(source).parameters:
            if str in (annotations[name], *typing.get_args(annotations[name])):
                assert name in known, name
