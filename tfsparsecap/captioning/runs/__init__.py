"""A run's folder: what it contains, and how it is written and read.

`run_folder` knows the files of `runs/NAME` and locks the folder while it is trained. `checkpoints` are
weights, gates and optimizer state after each epoch, so that a resumed run ends with the same weights.
"""
