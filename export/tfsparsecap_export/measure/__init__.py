"""Latency and memory of files, measured in turns, so that a busy machine slows all of them down alike.

`model_latency` times a Keras model, and `profiling` splits the time of a file among its operators; both time
`single_runs`. `timing`, beside this folder, compares files.
"""
