"""The networks of `benchmarks.distil`, in PyTorch: DINOv2, EfficientNet-Lite, and a decoder of captions."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import timm
import torch
from onnx import numpy_helper
from torch import Tensor, nn
from torch.nn import functional

from tfsparsecap.core.weight_files.onnx_file import read_onnx
from tfsparsecap.core.weight_files.weight_formats import read_weights
from tfsparsecap.errors import InputError

#: Side of the images in pixels, of DINOv2's patches, and of the map of patches.
SIZE, PATCH, PATCHES = 224, 14, 16
#: Ids of the tokens that are no words.
PAD, START, END, UNKNOWN = range(4)
_WIDTH = 384  # of DINOv2 ViT-S/14
_MEAN, _DEVIATION = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)


class Dino(nn.Module):
    """DINOv2 ViT-S/14: images float32 [B, 3, 224, 224], 0 to 255, to [B, 1 + 256, 384], the class first.

    Args:
        path: ONNX file of the network, exported by PyTorch.
        drop_path: rate of stochastic depth.

    Raises:
        InputError: the file contains another network.
    """

    def __init__(self, path: Path, drop_path: float = 0.0) -> None:
        super().__init__()
        self.network = timm.create_model(
            "vit_small_patch14_dinov2", img_size=SIZE, num_classes=0, drop_path_rate=drop_path
        )
        arrays = {name.removeprefix("model."): values for name, values in read_onnx(path).items()}
        if "blocks.0.attn.qkv.weight" not in arrays:
            raise InputError(f"{path} does not contain DINOv2: give an ONNX file of its ViT-S/14")
        arrays["pos_embed"] = _positions(path)
        parameters = self.network.state_dict()
        self.network.load_state_dict({name: torch.tensor(arrays[name].copy()) for name in parameters})
        self.register_buffer("mean", torch.tensor(_MEAN)[:, None, None], persistent=False)
        self.register_buffer("deviation", torch.tensor(_DEVIATION)[:, None, None], persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        scaled = (images - self.mean) / self.deviation
        return self.network.forward_features(scaled.to(next(self.network.parameters()).dtype))


def patch_map(tokens: Tensor) -> Tensor:
    """The patches of `Dino`'s result as a map [B, 384, 16, 16]."""
    return tokens[:, 1:].transpose(1, 2).unflatten(2, (PATCHES, PATCHES))


def _positions(path: Path) -> np.ndarray:
    """The embeddings of positions, which the file has for larger images: float32 [1, 257, 384]."""
    tensors = [numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer]
    first, grid = sorted(
        (array.reshape(-1, _WIDTH) for array in tensors if array.shape[-1:] == (_WIDTH,) and array.ndim > 2),
        key=len,
    )[-2:]
    side = round(len(grid) ** 0.5)
    square = torch.tensor(grid.copy()).T.reshape(1, _WIDTH, side, side)
    # DINOv2 adds 0.1, so that rounding does not lose a row.
    resized = functional.interpolate(square, scale_factor=(PATCHES + 0.1) / side, mode="bilinear")
    return np.concatenate([first[None], resized.flatten(2).transpose(1, 2).numpy()], 1)


class Lite(nn.Module):
    """EfficientNet-Lite without its last convolution: images [B, 3, 224, 224], 0 to 255, to [B, C, 7, 7].

    Args:
        name: such as `efficientnet_lite2`.
        path: its published weights, with the names of timm or of the package `efficientnet_lite…`.

    Raises:
        InputError: the file contains another network.
    """

    def __init__(self, name: str, path: Path) -> None:
        super().__init__()
        network = timm.create_model(f"tf_{name}")
        own = [key for key in network.state_dict() if not key.endswith("num_batches_tracked")]
        own = [key for key in own if not key.startswith("classifier.")]
        arrays = {key: values for key, values in read_weights(path).items() if not key.startswith("_fc.")}
        arrays = {key: values for key, values in arrays.items() if not key.endswith("num_batches_tracked")}
        if own[0] not in arrays:  # the package's names, in the same order
            arrays = dict(zip(own, arrays.values(), strict=False))
        shapes = {key: tuple(values.shape) for key, values in network.state_dict().items()}
        if any(key not in arrays or arrays[key].shape != shapes[key] for key in own):
            raise InputError(f"{path} does not contain {name}: give its published weights")
        network.load_state_dict({key: torch.tensor(arrays[key].copy()) for key in own}, strict=False)
        self.network = network
        self.channels = network.blocks[-1][-1].bn3.num_features

    def forward(self, images: Tensor) -> Tensor:
        scaled = ((images - 127) / 128).contiguous(memory_format=torch.channels_last)
        return self.network.blocks(self.network.bn1(self.network.conv_stem(scaled)))


class Decoder(nn.Module):
    """A transformer that predicts the words of captions from features of an image.

    Args:
        channels, positions: of the features [B, positions, channels].
        words: number of tokens; width, layers, heads: sizes.
        dropout: rate.
        length: maximum number of tokens of a caption.
    """

    def __init__(
        self,
        channels: int,
        positions: int,
        words: int,
        *,
        width: int,
        layers: int,
        heads: int,
        dropout: float,
        length: int,
    ) -> None:
        super().__init__()
        self.project, self.drop = nn.Linear(channels, width), nn.Dropout(dropout)
        self.position = nn.Parameter(torch.zeros(positions, width))
        self.words = nn.Embedding(words, width)
        nn.init.normal_(self.words.weight, std=width**-0.5)
        self.order = nn.Parameter(0.02 * torch.randn(length, width))
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.blocks = nn.ModuleList(_Block(width, heads, dropout) for _ in range(layers))

    def memory(self, features: Tensor) -> Tensor:
        """What the words attend to: [B, positions, width]."""
        return self.before(self.drop(self.project(features)) + self.position)

    def forward(self, memory: Tensor, tokens: Tensor) -> Tensor:
        """Logits [B R, T, words] of the next tokens, for R captions int64 [B R, T] of each image."""
        x = self.drop(self.words(tokens) + self.order[: tokens.shape[1]])
        for block in self.blocks:
            x = block(x, memory)
        return self.after(x) @ self.words.weight.T

    def loss(self, features: Tensor, captions: Tensor, smoothing: float) -> Tensor:
        """Cross-entropy of captions int64 [B, R, T + 1]."""
        tokens = captions.flatten(0, 1)
        tokens = tokens[:, : int((tokens != PAD).sum(1).max())]
        logits = self(self.memory(features), tokens[:, :-1]).float().flatten(0, 1)
        following = tokens[:, 1:].flatten()
        return functional.cross_entropy(logits, following, ignore_index=PAD, label_smoothing=smoothing)

    def sample(self, memory: Tensor, count: int, temperature: float) -> tuple[list, list]:
        """Tokens and log-probability of `count` captions of each image; the likeliest words at 0."""
        tokens = torch.full((len(memory) * count, 1), START, device=memory.device)
        total = torch.zeros(len(tokens), device=memory.device)
        done = torch.zeros(len(tokens), dtype=torch.bool, device=memory.device)
        for _ in range(len(self.order)):
            logits = self(memory, tokens)[:, -1].float()
            logits[:, [PAD, START, UNKNOWN]] = -torch.inf
            if temperature:
                word = torch.multinomial((logits / temperature).softmax(-1), 1)[:, 0]
            else:
                word = logits.argmax(-1)
            word = word.masked_fill(done, PAD)
            step = logits.log_softmax(-1).gather(1, word[:, None])[:, 0]
            total += step.masked_fill(done, 0.0)
            tokens, done = torch.cat([tokens, word[:, None]], 1), done | (word == END)
            if done.all():
                break
        return tokens.unflatten(0, (-1, count)).tolist(), total.unflatten(0, (-1, count)).tolist()


class _Block(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.drop = heads, nn.Dropout(dropout)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.own, self.own_result = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.query, self.other = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.other_result = nn.Linear(width, width)
        self.inner = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        query, key, value = self._split(self.own(self.norms[0](x)).chunk(3, -1))
        x = x + self.drop(self.own_result(_attend(query, key, value, is_causal=True).view_as(x)))
        key, value = self._split(self.other(memory).chunk(2, -1))
        together = self.query(self.norms[1](x)).view(len(memory), -1, x.shape[-1])  # captions of an image
        (query,) = self._split([together])
        x = x + self.drop(self.other_result(_attend(query, key, value).view_as(x)))
        return x + self.drop(self.inner(self.norms[2](x)))

    def _split(self, parts: Sequence[Tensor]) -> list[Tensor]:
        return [part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts]


def _attend(query: Tensor, key: Tensor, value: Tensor, is_causal: bool = False) -> Tensor:
    attention = functional.scaled_dot_product_attention(query, key, value, is_causal=is_causal)
    return attention.transpose(1, 2).flatten(2).contiguous()
