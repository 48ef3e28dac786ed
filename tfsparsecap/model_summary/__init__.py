"""`sc.summary`: weights, non-zeros, multiply-adds and bytes of a model, layer by layer.

`summarize` walks through the layers as a forward pass does (`forward`), and asks for each of them how many
products it computes. Layers of Keras have their formulas in `formulas`; other layers register their own with
`formulas.register`, next to the layer. `storage` says what the weights take in a file, `nonzeros` counts, and
`summary_tables` prints.
"""
