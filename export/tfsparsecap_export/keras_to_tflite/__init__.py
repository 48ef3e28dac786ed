"""Conversion of Keras models to dense float32 .tflite files, whose weights the exporter then stores anew.

`graph` traces the forward pass of a built model as one TensorFlow function, turns its variables into
constants, and gives it to TensorFlow's converter. Layers compute in float32 meanwhile, also those with mixed
precision. If the runtime lacks an operation, the error names it and the layers that use it.

The converter would call the two kernels of an LSTM or GRU one after the other; `rnn_fusion` makes one product
per time step of them, which is faster when they are sparse. `tensorflow_internals` holds the private names
of TensorFlow that only the export needs, `tfsparsecap.core.keras_internals` the others.
"""
