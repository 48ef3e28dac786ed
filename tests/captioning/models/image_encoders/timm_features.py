"""Writes timm_features.npz: features that timm computes with random weights (pip install torch timm).

For each network: names and shapes of timm's arrays (`fill` gives them values), and some channels of the
feature map of a random image.
"""

import json
from pathlib import Path

import numpy as np

FILE = Path(__file__).with_suffix(".npz")
#: Network of this package -> timm's name, size of the image.
NETWORKS = {
    "efficientnet_lite0": ("tf_efficientnet_lite0", 224),
    "efficientnet_lite1": ("tf_efficientnet_lite1", 240),
    "efficientnet_lite2": ("tf_efficientnet_lite2", 260),
    "efficientnet_lite3": ("tf_efficientnet_lite3", 280),
    "tiny_vit_5m": ("tiny_vit_5m_224", 224),
}
CHANNELS = slice(None, None, 40)


def fill(shapes):
    """name -> array of random weights that keep activations of a usual size."""
    rng = np.random.default_rng(0)
    arrays = {}
    for name, shape in shapes.items():
        values = rng.standard_normal(shape)
        if name.endswith("num_batches_tracked"):
            values = np.array(7)
        elif len(shape) > 1:
            values *= np.sqrt(1 / np.prod(shape[1:]))
        elif name.endswith(("running_var", "weight")):
            values = np.exp(values / 4)
        else:
            values /= 4
        arrays[name] = values.astype("int64" if values.ndim == 0 else "float32")
    return arrays


def image(size):
    """A float32 image [1, size, size, 3] of integers from 0 to 255."""
    return np.random.default_rng(1).integers(0, 256, (1, size, size, 3)).astype("float32")


def main():
    import timm
    import torch

    arrays = {}
    for name, (timm_name, size) in NETWORKS.items():
        network = timm.create_model(timm_name).eval()
        shapes = {key: list(value.shape) for key, value in network.state_dict().items()}
        network.load_state_dict({key: torch.from_numpy(value) for key, value in fill(shapes).items()})
        if name == "tiny_vit_5m":
            mean, deviation = 255 * np.array([0.485, 0.456, 0.406]), 255 * np.array([0.229, 0.224, 0.225])
        else:
            mean, deviation = 127, 128
        pixels = ((image(size) - mean) / deviation).astype("float32").transpose(0, 3, 1, 2)
        with torch.no_grad():
            features = network.forward_features(torch.from_numpy(pixels)).numpy().transpose(0, 2, 3, 1)
        print(name, features.shape, features.std())
        arrays[name], arrays[f"{name}.shapes"] = features[0, ..., CHANNELS], json.dumps(shapes)
    np.savez_compressed(FILE, **arrays)


if __name__ == "__main__":
    main()
