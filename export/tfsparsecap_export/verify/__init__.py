"""Checks of a file before it is written.

`outputs` compares its outputs, or captions, with the Keras model's (`expected`, `differences`), `probe` runs
files that may crash in a child process, `portability` checks what older runtimes and phones need, and
`quality` measures what int8 costs in CIDEr and keeps layers float that lose too much.
"""
