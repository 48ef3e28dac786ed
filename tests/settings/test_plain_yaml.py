"""Only plain values are accepted in settings."""

import pytest
import yaml

from tfsparsecap.errors import InputError
from tfsparsecap.settings.plain_yaml import check_plain


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: ${oc.env:HOME}", r"^x contains a reference at line 2: write the value itself$"),
        ("${a}: 1", r"a reference at line 1"),
        ("a: &b 1", r"an anchor or alias .* at line 1: write the value itself, or in quotes"),
        ("a: *b", r"an anchor or alias"),
        ("a: !!int 1", r"a tag \(!\) at line 1: write the value without it"),
        ("a: ! b", r"a tag"),
        ("a: !x [1]", r"a tag"),
        ('"a\\0": 1', r"a character that is not text"),
        ('a: ["\\uD83D"]', r"a character that is not text"),
        ("[" * 21 + "]" * 21, r"nested too deeply at line 1: remove them"),
        ("a: 0x" + 5000 * "f", r"a value of 5002 characters at line 1: shorten it"),
        ("[" * 50_000, r"nested too deeply"),
    ],
)
def test_everything_else_is_refused_with_its_line(text, message):
    with pytest.raises(InputError, match=message):
        check_plain(text, "x")


@pytest.mark.parametrize(
    "text", ["", "a", "{a: [1, 2.5, true, null, 'x$y', \"été\"], b: {c: $HOME}}", "[" * 20 + "]" * 20]
)
def test_plain_values_are_accepted(text):
    check_plain(text, "x")


def test_what_is_not_yaml_is_left_to_the_caller():
    with pytest.raises(yaml.YAMLError):
        check_plain("[1", "x")
