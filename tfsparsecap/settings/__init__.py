"""Settings of a run: their schema, and how files and command lines are read."""
