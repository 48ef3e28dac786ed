"""Latency of a model and of the operators of a file, on this machine.

`model_latency` times a Keras model, and `profiling` splits the time of a file among its operators; both time
`single_runs`. `timing`, beside this folder, compares files.
"""
