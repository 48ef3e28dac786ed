"""METEOR with failing Java programs; test_scores.py compares it with pycocoevalcap's."""

import pytest

from tfsparsecap.errors import InputError
from tfsparsecap.metrics.meteor import meteor

REFERENCES, CAPTIONS = {"a": ["two men sit on a bench"]}, {"a": "two men on a bench"}


def test_a_program_that_ends_early_is_reported_and_not_waited_for(commands):
    commands("java", "import sys; input(); sys.exit('Error: Unable to access jarfile')")
    with pytest.raises(InputError, match=r"METEOR failed with .*java: Error: Unable to access jarfile"):
        meteor(REFERENCES, CAPTIONS)


def test_output_that_is_not_a_score_is_reported(commands):
    commands("java", "import sys\nfor line in sys.stdin: print('eh?\\n' * 3, flush=True)\n")
    with pytest.raises(InputError, match=r"METEOR failed"):
        meteor({1: ["a"]}, {1: "a"})


def test_without_java_the_error_says_what_to_install(commands):
    with pytest.raises(InputError, match=r"Java is not installed"):
        meteor(REFERENCES, CAPTIONS)
