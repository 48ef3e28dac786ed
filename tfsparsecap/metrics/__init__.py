"""Scores of captions: pycocoevalcap's metrics and statistics of the captions themselves."""
