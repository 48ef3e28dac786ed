"""Captions of photographs: data, captioners, training and search. What is here stands on the rest.

A run begins with `settings`, which say where the `data` are and which of the `models` learns from them;
`training` trains it, prunes it with `tfsparsecap.pruning`, and writes a folder (`runs`). `search` finds the
likeliest sentences, `inference` loads runs and exported files and captions images, `metrics` and `rewards`
compare captions with those of people, and `html_report` shows what runs have learned. `captioners` are the
files that come with the package.
"""
