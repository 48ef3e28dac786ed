"""From a Keras model to a dense float32 .tflite file."""
