"""Training of captioners: from settings to a finished run.

`train_run` reads like a table of contents: folder, data, captioner (from `other_runs`, or new), teachers
(`other_runs`), gates (`run_pruning`), and then the `phases`: training, fine-tuning of the encoder, and
rewards (`scst`). Each phase runs a `loop` with an optimizer and `callbacks`. `hidden_states` is the loop of
RTIC's distillation. `distribution` and `cluster` train on several devices and machines.
"""
