"""Settings of the search for captions."""

from typing import Annotated, Literal

from pydantic import Field

from tfsparsecap.captioning.search.search_options import FUNCTION_WORDS, LARGEST_BEAM, SearchOptions
from tfsparsecap.captioning.settings.section import AsValue, Count, Section, Size


class Decoding(Section):
    """How a run generates captions when it is evaluated, used or exported; not during training.

    Attributes:
        beam: beam size; 1 is greedy. Exported files have at least 3, because apps show alternatives.
        batch_size: images per batch.
        plain: plain beam search, without the rules for complete sentences and without length penalty.
        no_repeat_ngram: N-grams of this length, and words in a row, are not repeated; 0 allows repetitions.
            Null is 3, but 0 for synthetic scenes, whose correct captions repeat "a small red".
        function_words: words that do not end a caption and may occur more than twice: `english`, or a list of
            such words for captions in another language; an empty list switches both rules off.
        length_penalty: exponent A: captions are ranked by their score divided by length ** A; 0 by score.
    """

    beam: Annotated[int, Field(ge=1, le=LARGEST_BEAM), AsValue] = 1
    batch_size: Size = 64
    plain: bool = False
    no_repeat_ngram: Count | None = None
    function_words: Literal["english"] | list[str] = "english"
    length_penalty: Annotated[float, Field(ge=0, le=10), AsValue] = SearchOptions.length_penalty

    def search_options(self, data: str | None = None) -> SearchOptions | None:
        """The options of the search on a kind of data; None for a plain search."""
        return None if self.plain else self.rules(data)

    def rules(self, data: str | None = None) -> SearchOptions:
        """The rules for complete sentences on a kind of data, even if the search is plain."""
        words = FUNCTION_WORDS if self.function_words == "english" else tuple(self.function_words)
        ngram = self.no_repeat_ngram
        if ngram is None:
            ngram = 0 if data == "scenes" else SearchOptions.no_repeat_ngram
        return SearchOptions(ngram, words, self.length_penalty)
