"""From a dense .tflite file to one whose weights are stored sparse, quantised or in half precision."""
