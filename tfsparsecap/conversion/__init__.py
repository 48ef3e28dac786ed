"""Published captioners: their configurations and their names of weights."""
