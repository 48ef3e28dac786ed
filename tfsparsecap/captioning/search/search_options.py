"""Options of the search for complete sentences."""

from collections.abc import Sequence
from dataclasses import dataclass

from tfsparsecap.core.text import normalised
from tfsparsecap.errors import check_number, check_whole

#: Memory of the search grows with the beam.
LARGEST_BEAM = 1000
#: English words that do not end a sentence: determiners, prepositions, conjunctions and auxiliary verbs.
#: Words that often do, such as "up", "outside" and "together", are left out.
FUNCTION_WORDS = tuple(
    """
    a an the this that these those its his my your our their some any another each every no both very
    of in on at to with from by for into onto over under near next between through throughout beside besides
    behind against across along alongside during toward towards upon among amongst amid amidst around about
    above beneath underneath before after off inside within without past via per like than until since beyond
    atop aboard opposite except
    and or but nor yet so as while when where because if though although whether
    which who whom whose
    is are was were be being been am has have having had does did can will would could should may might
    """.split()  # noqa: SIM905
)


@dataclass(frozen=True)
class SearchOptions:
    """Options of the search for complete sentences. Without them (None), the search is plain.

    Attributes:
        no_repeat_ngram: N-grams of this length do not occur twice in a caption; no word follows itself; and
            no word that is not in `function_words` occurs three times. 0 allows all repetitions.
        function_words: articles, prepositions, conjunctions and other words that do not end a caption and may
            occur any number of times. Empty, as for a language whose function words are unknown: captions
            may end in any word, and words may occur three times.
        length_penalty: exponent A: captions are ranked by their score divided by `length ** A`, in which the
            end token counts. 1 ranks by the mean log-probability of the tokens, 0 by their sum, which favours
            short captions, all the more the wider the beam.

    Raises:
        InputError: a number is negative, or not finite.
    """

    no_repeat_ngram: int = 3
    function_words: Sequence[str] = FUNCTION_WORDS
    length_penalty: float = 1.0

    def __post_init__(self) -> None:
        check_whole("no_repeat_ngram", self.no_repeat_ngram, at_least=0)
        check_number("length_penalty", self.length_penalty, at_least=0, at_most=10)
        object.__setattr__(self, "function_words", tuple(map(normalised, self.function_words)))
