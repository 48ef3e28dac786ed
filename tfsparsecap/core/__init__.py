"""What all other packages share, none of it about pruning or captions.

`model_call` knows how a Keras model is called: the names, shapes and types of its inputs. `keras_internals`
is the only module that touches private names of Keras. `files` writes whole files or nothing, its locks and
`child_processes` keep processes apart, `array_files`, `saved_models` and `weight_files` read what others
wrote, without executing it, and `text` writes numbers and names for people. `draws` makes all parts of a
model that share a gate see the same sample.
"""
