"""The settings of a run, from a YAML file and the command line to the objects that they describe.

`schema` lists all of them, with their types, ranges and defaults. `config_files` reads and writes them,
`contradictions` checks what they require of each other before anything is computed, `build` makes data,
vocabulary, captioner and batches, and `listing` prints them for `--list-settings`.
"""
