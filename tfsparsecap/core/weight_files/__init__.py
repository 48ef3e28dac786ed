"""Reading files of weights that other programs wrote, without executing anything in them.

`read_weights` in `weight_formats` returns arrays by name, whatever the format: safetensors, PyTorch's
archives, old and new (`torch_archive`, with a machine for the few pickle instructions that
they need), and ONNX. `keras_archive` checks `.keras` and HDF5 files before Keras opens them.
"""
