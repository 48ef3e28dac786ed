"""`sc.summary`: weights, non-zeros, multiply-adds and bytes of a model, layer by layer.

`summarize` calls the model once, symbolically, and records which layers are called with which shapes
(`forward`), also in loops and for the words of a caption. Each layer has a formula for its products:
those of Keras are in `formulas`, others register their own with `formulas.register`, next to the layer.

`nonzeros` counts weights, through gates while a model is pruned; `storage` says what they take in a file,
dense, sparse, in int8 blocks or compressed. `summary_tables` holds the sums and prints them.
"""
