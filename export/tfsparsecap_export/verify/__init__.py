"""Checks of a file: against the Keras model, on captions with references, for other runtimes."""
