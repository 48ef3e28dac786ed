"""The trainings of `benchmarks.distil`, in PyTorch."""

import argparse
import collections
import json
import math
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.distil_networks import END, PAD, SIZE, START, UNKNOWN, Decoder, Dino, Lite, patch_map
from tfsparsecap.captioning import data as sources
from tfsparsecap.captioning.data.images import read_image
from tfsparsecap.captioning.metrics.tokenize import light_tokenize
from tfsparsecap.core.files import atomic_write

_LENGTH, _CAPTIONS, _RAREST = 20, 5, 3  # tokens of a caption, captions of an image, uses of a word
# What is written for an image: (number of captions, temperature).
_WRITTEN = ((1, 0.0), (20, 0.6), (8, 0.3))
_WARMUP = 150
# The smallest area of crops, for captions, and for features, which need not show what a caption says.
_CROP, _FEATURE_CROP = 0.6, 0.2


def distil(options: argparse.Namespace) -> None:
    """Trains what the options of `benchmarks.distil` name, and writes it."""
    images = _Images(options.table, "cuda" if torch.cuda.is_available() else "cpu")
    trainer = _Captioner(images, options) if options.task == "captions" else _Encoder(images, options)
    _train(trainer, images, options.epochs or trainer.epochs)
    trainer.write(options.output)


class _Images:
    """The training images with captions, their captions and objects, on the device."""

    def __init__(self, folder: Path, device: str) -> None:
        records = [record for record in sources.load("table", folder).split("train") if record.captions]
        with ThreadPoolExecutor() as pool:
            pixels = list(pool.map(lambda record: read_image(record.image, SIZE), records))
        self.records, self.device = records, device
        self.pixels = torch.tensor(np.stack(pixels)).to(device)
        self.indices = torch.arange(len(records))
        uses = collections.Counter(
            word for record in records for text in record.captions for word in light_tokenize(text).split()
        )
        frequent_words = sorted(word for word, count in uses.items() if count >= _RAREST)
        self.words = ["", "", "", "", *frequent_words]
        ids = {word: number for number, word in enumerate(self.words) if word}
        captions = torch.full((len(records), _CAPTIONS, _LENGTH + 1), PAD)
        for row, record in zip(captions, records, strict=True):
            for number in range(_CAPTIONS):
                text = light_tokenize(record.captions[number % len(record.captions)])
                tokens = [ids.get(word, UNKNOWN) for word in text.split()][: _LENGTH - 1]
                row[number, : len(tokens) + 2] = torch.tensor([START, *tokens, END])
        names = sorted({name for record in records for name in record.labels or ()})
        present = [[float(name in (record.labels or ())) for name in names] for record in records]
        self.captions = captions.to(device)
        self.objects = torch.tensor(present).reshape(len(records), len(names)).to(device)
        self.labelled = torch.tensor([float(record.labels is not None) for record in records]).to(device)

    def batches(self, size: int) -> Iterator[Tensor]:
        """One epoch of indices, shuffled."""
        for part in torch.randperm(len(self.indices)).split(size):
            if len(part) == min(size, len(self.indices)):
                yield part.to(self.device)

    def whole(self, indices: Tensor) -> Tensor:
        """float32 [B, 3, S, S], 0 to 255."""
        return self.pixels[indices].permute(0, 3, 1, 2).float()

    def changed(self, indices: Tensor, smallest: float) -> Tensor:
        """Like `whole`: crops of at least a share of the area, mirrored, with other colours."""
        x, count = self.whole(indices), len(indices)

        def uniform(low: float, high: float) -> Tensor:
            return torch.empty(count, device=self.device).uniform_(low, high)

        side, ratio = uniform(smallest, 1).sqrt(), uniform(-0.2, 0.2).exp()
        width, height = (side * ratio).clamp(max=1), (side / ratio).clamp(max=1)
        mirrored = torch.where(uniform(0, 1) < 0.5, -1.0, 1.0)
        zero = torch.zeros_like(width)
        rows = [width * mirrored, zero, uniform(-1, 1) * (1 - width)]
        rows += [zero, height, uniform(-1, 1) * (1 - height)]
        grid = functional.affine_grid(torch.stack(rows, 1).view(-1, 2, 3), list(x.shape), align_corners=False)
        x = functional.grid_sample(x, grid, padding_mode="reflection", align_corners=False)
        x = x * uniform(0.7, 1.3)[:, None, None, None]
        for axes in ((1, 2, 3), (1,)):  # contrast, saturation
            mean = x.mean(axes, keepdim=True)
            x = (x - mean) * uniform(0.7, 1.3)[:, None, None, None] + mean
        return x.clamp(0, 255)

    def object_loss(self, logits: Tensor, indices: Tensor) -> Tensor:
        """Cross-entropy of the objects, summed over them, of images with labels."""
        target, mask = self.objects[indices], self.labelled[indices]
        losses = functional.binary_cross_entropy_with_logits(logits.float(), target, reduction="none").sum(1)
        return (losses * mask).sum() / mask.sum().clamp(min=1)


class _Captioner(nn.Module):
    """DINOv2, trained with a decoder; earlier layers learn slower."""

    epochs, batch = 17, 96

    def __init__(self, images: _Images, options: argparse.Namespace) -> None:
        super().__init__()
        self.dino = Dino(options.dinov2, drop_path=0.1)
        sizes = {"width": 512, "layers": 3, "heads": 8, "dropout": 0.2, "length": _LENGTH}
        self.decoder = Decoder(384, 65, len(images.words), **sizes)
        self.objects = nn.Linear(2 * 384, images.objects.shape[1])
        self.images = images

    def rate(self, name: str) -> float:
        if not name.startswith("dino."):
            return 4e-4
        parts = name.split(".")
        depth = int(parts[3]) if parts[2] == "blocks" else 12 if parts[2] == "norm" else -1
        return 5e-5 * 0.8 ** (12 - depth)

    def features(self, x: Tensor) -> Tensor:
        """[B, 65, 384]: the class, and means of 2 x 2 patches."""
        tokens = self.dino(x)
        cells = functional.avg_pool2d(patch_map(tokens), 2).flatten(2).transpose(1, 2)
        return torch.cat([tokens[:, :1], cells], 1)

    def loss(self, indices: Tensor) -> Tensor:
        features = self.features(self.images.changed(indices, _CROP))
        logits = self.objects(torch.cat([features[:, 0], features[:, 1:].mean(1)], 1))
        words = self.decoder.loss(features, self.images.captions[indices], 0.1)
        return words + 0.05 * self.images.object_loss(logits, indices)

    def write(self, path: Path) -> None:
        """Writes different captions of each training image and their log-probabilities, a line for each."""
        lines = []
        for part in self.images.indices.split(64):
            memory = self.decoder.memory(self.features(self.images.whole(part.to(self.images.device))))
            texts: list[dict[str, float]] = [{} for _ in part]
            for count, temperature in _WRITTEN:
                sampled = self.decoder.sample(memory, count, temperature)
                for captions, rows, scores in zip(texts, *sampled, strict=True):
                    for tokens, score in zip(rows, scores, strict=True):
                        words = (self.images.words[token] for token in tokens)
                        captions.setdefault(" ".join(filter(None, words)), score)
            for index, captions in zip(part, texts, strict=True):
                row = {"image": self.images.records[index].image_id, "captions": list(captions)}
                lines.append(json.dumps({**row, "scores": [round(x, 3) for x in captions.values()]}) + "\n")
        atomic_write(path, "".join(lines))


class _Encoder(nn.Module):
    """An encoder that predicts DINOv2's features: a map of 14 x 14 patches, four for each of its cells, and
    the class. Half of each batch also predicts captions and objects; the other half, smaller crops of which
    some are mixtures of two, only features."""

    epochs, batch = 52, 256

    def __init__(self, images: _Images, options: argparse.Namespace) -> None:
        super().__init__()
        self.lite = Lite(options.network, options.weights)
        channels = self.lite.channels
        self.map, self.class_head = nn.Conv2d(channels, 4 * 384, 1), nn.Linear(channels, 384)
        self.objects = nn.Linear(channels, images.objects.shape[1])
        sizes = {"width": 384, "layers": 2, "heads": 6, "dropout": 0.15, "length": _LENGTH}
        self.decoder = Decoder(channels, 49, len(images.words), **sizes)
        self.images = images
        dino = Dino(options.dinov2).requires_grad_(False).eval().to(images.device)
        if images.device == "cuda":
            dino.network.bfloat16()
        self._dino = [dino]  # in a list: not trained
        with torch.no_grad():
            sample = images.indices[:: max(1, len(images.indices) // 192)].to(images.device)
            tokens = torch.cat([dino(images.whole(part)).float() for part in sample.split(96)])
            self._class = tokens[:, 0].mean(0), tokens[:, 0].std(0)
            cells = patch_map(tokens)
            self._cells = (
                cells.mean((0, 2, 3), keepdim=True),
                cells.transpose(0, 1).flatten(1).std(1)[:, None, None],
            )

    def rate(self, name: str) -> float:
        return 7e-4 if name.startswith("lite.") else 1e-3

    def train(self, mode: bool = True) -> "_Encoder":
        super().train(mode)
        if getattr(self, "fixed_statistics", False):
            for module in self.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.eval()
        return self

    def loss(self, indices: Tensor) -> Tensor:
        half = len(indices) // 2
        first, second = indices[:half], indices[half:]
        mixed = self.images.changed(second, _FEATURE_CROP)
        share = torch.rand(len(second), 1, 1, 1, device=mixed.device)
        share = torch.where(torch.rand_like(share) < 0.5, torch.ones_like(share), share)
        x = torch.cat([self.images.changed(first, _CROP), mixed * share + mixed.flip(0) * (1 - share)])
        with torch.no_grad():
            tokens = self._dino[0](x).float()
        expected = functional.adaptive_avg_pool2d((patch_map(tokens) - self._cells[0]) / self._cells[1], 14)
        features = self.lite(x)
        prediction = functional.pixel_shuffle(self.map(features), 2).float()
        loss = 2 * functional.mse_loss(prediction, expected)
        pooled = self.class_head(features.mean((2, 3))).float()
        loss = loss + functional.mse_loss(pooled, (tokens[:, 0] - self._class[0]) / self._class[1])
        chosen = torch.randint(_CAPTIONS, (half, 2), device=x.device)
        captions = self.images.captions[first[:, None], chosen]
        words = self.decoder.loss(features[:half].flatten(2).transpose(1, 2), captions, 0.1)
        logits = self.objects(features[:half].mean((2, 3)))
        return loss + 0.5 * words + 0.03 * self.images.object_loss(logits, first)

    def write(self, path: Path) -> None:
        """Writes the weights of the encoder under timm's names."""
        state = self.lite.network.state_dict()
        weights = {
            name: values.cpu().contiguous() for name, values in state.items() if "classifier" not in name
        }
        atomic_write(path, save(weights))


def _train(trainer: _Captioner | _Encoder, images: _Images, epochs: int) -> None:
    """Trains with AdamW and a cosine schedule; the result are the moving averages of the weights."""
    trainer.to(images.device)
    groups = [
        {"params": [weight], "lr": trainer.rate(name), "weight_decay": 0.03 if weight.ndim > 1 else 0.0}
        for name, weight in trainer.named_parameters()
    ]
    rates = [group["lr"] for group in groups]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.99), fused=images.device == "cuda")
    averages = {name: values.detach().clone() for name, values in trainer.state_dict().items()}
    steps = epochs * len(list(images.batches(trainer.batch)))
    step, start = 0, time.time()
    for epoch in range(epochs):
        losses = []
        for indices in images.batches(trainer.batch):
            trainer.fixed_statistics = step > 0.7 * steps
            trainer.train()
            factor = min(1, (step + 1) / _WARMUP) * (0.02 + 0.49 * (1 + math.cos(math.pi * step / steps)))
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = factor * rate
            with torch.autocast(images.device, torch.bfloat16, enabled=images.device == "cuda"):
                loss = trainer.loss(indices)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(trainer.parameters(), 1.0)
            optimizer.step()
            step += 1
            decay = min(0.998, (1 + step) / (10 + step))
            for name, values in trainer.state_dict().items():
                if values.is_floating_point():
                    averages[name].lerp_(values, 1 - decay)
            losses.append(loss.detach())
        mean = float(torch.stack(losses).mean())
        print(f"epoch {epoch + 1} of {epochs}: loss {mean:.3f}, {time.time() - start:.0f} s", flush=True)
    trainer.load_state_dict(averages)
    trainer.eval().requires_grad_(False)
