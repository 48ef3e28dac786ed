"""Studies: many trainings that differ in captioner, method, sparsity or seed, and one table of their scores.

A study's file (`configs/studies/NAME.yaml`) is read into a `Study` (`study.py`), whose `grid` is a list of
runs, each with all its settings. `runner.py` checks these settings, trains what is not finished, several
runs at once, and reads the scores of finished runs. `table.py` computes means and standard deviations over
seeds, and `plot.py` draws them by sparsity.

`python -m tfsparsecap.study` does all of this; docs/studies.md explains the file.
"""
