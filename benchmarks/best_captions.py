"""The best of many captions that a captioner samples for training images, by what people wrote about them."""

from collections.abc import Mapping, Sequence

from benchmarks.ranked_captions import fits_labels
from tfsparsecap.captioning.data.records import Record
from tfsparsecap.captioning.metrics.tokenize import light_tokenize
from tfsparsecap.captioning.rewards.caption_reward import cider_d
from tfsparsecap.captioning.rewards.references import References

#: How many captions an image gets.
CAPTIONS = 5
# What a unit of log-probability is worth in CIDEr-D: likely captions are grammatical ones. People's captions
# count like rather unlikely ones, so that the captioner's words are preferred where they say the same.
_LOG_PROBABILITY_WEIGHT, _PEOPLE = 0.03, -15.0
# Captions whose n-grams are in memory together.
_AT_ONCE = 4000
# Words that a caption may repeat; others are a captioner's mistakes ("a blue and blue car").
_REPEATABLE = frozenset(
    """a an the of and in on with is are to at by his her their its it near next other another that while one
    two tennis baseball man woman people dog dogs boy girl""".split()  # noqa: SIM905
)


def best_captions(
    records: Sequence[Record], written: Mapping[str, Mapping[str, float]], others: Mapping[str, Sequence[str]]
) -> dict[str, list[str]]:
    """The captions of each image with the largest CIDEr-D, from those that a captioner wrote and people's.

    They are compared with people's captions (each of these with the others). An image with fewer than two
    has the captions that agree most with all that were written for it.

    Args:
        records: images of one kind; document frequencies are theirs.
        written: captions and their log-probabilities, by image.
        others: captions of other images that fit to an image without captions, by image.

    Returns:
        `CAPTIONS` captions of each image, best first; fewer or none if others name wrong objects.
    """
    by_people = [_words(record.captions) if len(record.captions) > 1 else [] for record in records]
    candidates = [
        [text for text in written.get(record.image_id, ()) if _is_usable(text, record)] for record in records
    ]
    references = [
        people or _words([*texts, *others.get(record.image_id, ())])
        for record, people, texts in zip(records, by_people, candidates, strict=True)
    ]
    scored_captions: list[list[tuple[float, str]]] = [[] for _ in records]
    for score, index, text in _scores(references, candidates):
        likelihood = written[records[index].image_id][text]
        scored_captions[index].append((score + _LOG_PROBABILITY_WEIGHT * likelihood, text))
    for turn in range(max(map(len, by_people), default=0)):
        other_references = [
            people[:turn] + people[turn + 1 :] or refs
            for people, refs in zip(by_people, references, strict=True)
        ]
        for score, index, text in _scores(
            other_references, [people[turn : turn + 1] for people in by_people]
        ):
            scored_captions[index].append((score + _LOG_PROBABILITY_WEIGHT * _PEOPLE, text))
    best = {}
    for record, scored in zip(records, scored_captions, strict=True):
        ordered = [text for _, text in sorted(scored, reverse=True)]
        best[record.image_id] = [*dict.fromkeys(ordered)][:CAPTIONS]
    return best


def _scores(
    references: Sequence[Sequence[str]], captions: Sequence[Sequence[str]]
) -> list[tuple[float, int, str]]:
    """CIDEr-D, index of the image, and text of each caption."""
    rows = [(index, text) for index, texts in enumerate(captions) for text in texts]
    compared, scored = References(references), []
    for start in range(0, len(rows), _AT_ONCE):
        images, texts = zip(*rows[start : start + _AT_ONCE], strict=True)
        scores = cider_d(compared, _words(texts), images).tolist()
        scored += zip(scores, images, texts, strict=True)
    return scored


def _words(captions: Sequence[str]) -> list[str]:
    return [light_tokenize(caption) for caption in captions]


def _is_usable(text: str, record: Record) -> bool:
    words = [word for word in text.split() if word not in _REPEATABLE]
    return bool(text) and len(set(words)) == len(words) and fits_labels(text, record.labels)
