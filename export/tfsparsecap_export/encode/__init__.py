"""Storage of the weights of a dense .tflite file in the encodings that suit their zeros."""
