"""Conversion of Keras models to dense float32 .tflite files."""
