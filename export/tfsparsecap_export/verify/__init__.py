"""Checks of a file: before it is written, and before a runtime or a phone gets it.

A file must do what the Keras model does, whatever its weights were rounded to. `outputs` runs both on the
same inputs and refuses files whose outputs differ by more than rounding explains; integers, probabilities and
masks are compared in their own ways. It also finds models that cannot be compared, because
they return NaN, text, or something else in each run.

Two modules are about any .tflite file: `portability` warns of what runtimes on phones reject or compute
wrongly, and `probe` loads and runs a file in a child process, which may crash, and measures its memory.
"""
