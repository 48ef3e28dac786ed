"""Conversion of Keras models to dense float32 .tflite files.

`graph` calls TensorFlow's converter with all weights as constants, `rnn_fusion` lets it find whole recurrent
layers, `unsupported` names the layers whose operations the runtime lacks, and `tensorflow_internals` holds
every private name of TensorFlow.
"""
