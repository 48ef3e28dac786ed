"""Settings that are texts keep what was typed or saved; only plain values are accepted."""

import inspect
import typing

import pytest
import yaml

from tfsparsecap.captioning.data import SOURCES
from tfsparsecap.captioning.settings.config_files import load_config, save_config
from tfsparsecap.captioning.settings.schema import Config, Data
from tfsparsecap.captioning.settings.yaml_values import read_value, read_yaml, value_of
from tfsparsecap.errors import InputError

# What some reader of YAML takes for a number, a date, a word or a mark.
_WORDS = r"""010 1e5 1E5 2024_05_01 2024-05-01 1:30 0x1F 0b1 0o7 .5 +1 -0 1_0 on Off YES no y N true False nan
.inf -.INF Infinity .NaN #1 *a &a !a %a @a `a | > , = << a: --- ... C:\new\x it's"""
_PHRASES = [
    "my #1 photos",
    "a: b",
    "- a",
    "? a",
    "a #",
    "--- a",
    'a "b"',
    "été 😀",
    "a  b",
    99 * "ab cd "[:-1],
]
UNUSUAL = [*_WORDS.split(), *_PHRASES]
# Texts that can be in a file only.
CONTROL = ["", "~", "null", " a", "a ", "\ta\t", "a\nb", "\n", " \n a \n", "a\r\nb"]
CONTROL += ["a\x85b", "a\u2028 b", "\ufeffa"]


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


@pytest.mark.parametrize("text", ["null", "~", "", " Null "])
def test_null_is_not_a_text(text):
    assert load_config(None, [f"data.folder={text}"]).data.folder is None
    assert load_config(None, ["data.folder='null'"]).data.folder == "null"


def test_quotes_and_other_types_are_yaml():
    assert load_config(None, ["data.folder='my #1 photos'"]).data.folder == "my #1 photos"
    assert load_config(None, ['data.folder="a\\tb"']).data.folder == "a\tb"
    config = load_config(None, ["seed=010", "data.train=1_0", "training.jit_compile=on"])
    assert (config.seed, config.data.options, config.training.jit_compile) == (8, {"train": 10}, True)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("7", 7), ("010", 8), ("0x1F", 31), ("1_0", 10), ("1:30", 90), ("0x_", "0x_"), ("2024-05-01",) * 2),
        *(("1e-4", 1e-4), ("1e3", 1000.0), ("1.5E3", 1500.0), (".5", 0.5), ("-.inf", -float("inf"))),
        *(("on", True), ("No", False), ("~", None), ("", None), ("'7'", "7"), ("y", "y"), ("<<", "<<")),
        ("{a: [1e1, '1']}", {"a": [10.0, "1"]}),
    ],
)
def test_values_of_options_are_those_of_yaml(text, value):
    for content in (read_value(text, "x"), read_yaml(f"key: {text}", "x")["key"]):
        assert value_of(content) == value and type(value_of(content)) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: ${oc.env:HOME}", r"^x contains a reference at line 2: write the value itself$"),
        ("${a}: 1", r"a reference at line 1"),
        ("a: &b 1", r"an anchor or alias .* at line 1: write the value itself, or in quotes"),
        ("a: *b", r"an anchor or alias"),
        ("a: !!int 1", r"a tag \(!\) at line 1: write the value without it"),
        ("a: !!python/object/apply:os.system [id]", r"a tag"),
        ("a: ! b", r"a tag"),
        ('"a\\0": 1', r"a character that is not text"),
        ('a: ["\\uD83D"]', r"a character that is not text"),
        ("[" * 21 + "]" * 21, r"nested too deeply at line 1: remove them"),
        ("[" * 50_000, r"nested too deeply"),
        ("a: 0x" + 5000 * "f", r"a value of 5002 characters at line 1: shorten it"),
        ("a: 1\na: 2", r"the key a twice at line 2: remove one of them"),
        ("{[1]: 2}", r"a key in brackets at line 1: give a name"),
    ],
)
def test_what_is_no_plain_value_is_refused_with_its_line(text, message):
    with pytest.raises(InputError, match=message):
        read_yaml(text, "x")


def test_deep_lists_are_accepted_and_what_is_not_yaml_is_left_to_the_caller():
    read_yaml("[" * 20 + "]" * 20, "x")
    with pytest.raises(yaml.YAMLError):
        read_yaml("[1", "x")


@pytest.mark.parametrize("setting", ["data.folder='a' #1", "a.b=[1] # c"])
def test_a_comment_on_the_command_line_is_refused(setting):
    with pytest.raises(InputError, match="on the command line has a comment, which would be ignored"):
        load_config(None, [setting])


@pytest.mark.parametrize("text", [*UNUSUAL, *CONTROL])
def test_saved_texts_are_read_back_exactly(text, tmp_path):
    config = Config(data={"folder": text, "augmentation": [text, {text: text}], "option": text})
    (tmp_path / "config.yaml").write_text(save_config(config), encoding="utf-8", newline="")
    assert load_config(tmp_path / "config.yaml") == config


def test_ordinary_texts_are_saved_without_quotes():
    saved = save_config(Config(name="a1", data={"folder": "/data/a b"}))
    assert saved.startswith("name: a1\n") and "folder: /data/a b\n" in saved


def test_the_texts_among_the_options_of_data_sources_are_known():
    for source in SOURCES.values():
        annotations = typing.get_type_hints(source)
        for name in inspect.signature(source).parameters:
            if str in (annotations[name], *typing.get_args(annotations[name])):
                assert name in (*Data.model_fields, *Data.texts), name
