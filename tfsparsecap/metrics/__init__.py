"""How good captions are, and what a model costs."""

from typing import Any

__all__ = ["every_score", "exact_match", "score"]


def __getattr__(name: str) -> Any:
    # `tfsparsecap` itself has `cost` in its public names, and pycocoevalcap takes its time to import.
    if name in __all__:
        from tfsparsecap.metrics import scores

        return getattr(scores, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
