"""Reading and changing the FlatBuffer of a .tflite file."""
