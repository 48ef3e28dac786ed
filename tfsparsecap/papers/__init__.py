"""What only reproduces the papers: their published captioners, and their studies.

`published` reads published checkpoints into the captioners of this project. A study is many trainings that
differ in captioner, method, sparsity or seed: its file (`configs/studies/NAME.yaml`) is read into a `Study`
(`study_grid`), whose `grid` is a list of runs, each with all its settings. `runner` checks these settings,
trains what is not finished, several runs at once, and reads the scores of finished runs. `score_table`
computes means and standard deviations over seeds, and `plot` draws them by sparsity.

`python -m tfsparsecap.study` does all of this; docs/studies.md explains the file.
"""
