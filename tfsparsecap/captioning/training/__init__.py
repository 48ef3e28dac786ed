"""Training of captioners: from settings to a finished run.

`train_run` reads like a table of contents: folder, data, captioner (`start`), gates (`gating`), teachers, and
then the `phases`: training, fine-tuning of the encoder, and rewards (`scst`). Each phase runs a `loop` with
an optimizer (`adam`) and `callbacks`. `distribution`, `workers` and `cluster` train on several devices and
machines.
"""
