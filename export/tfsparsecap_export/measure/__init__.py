"""Latency and memory of files, measured in turns, so that a busy machine slows all of them down alike.

`timing` runs files on the same inputs, `model_latency` a Keras model, and `one_operator` a single product,
from which the costs of kernels come; `profiling` splits the time of a file among its operators.
"""
