"""Captions from finished runs and exported files, and their scores."""
