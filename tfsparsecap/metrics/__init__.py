"""How good captions are."""

from tfsparsecap.metrics.scores import exact_match, score

__all__ = ["exact_match", "score"]
