"""Kinds of cases that are about data and settings: images, tables, settings, features, results."""

import json
from pathlib import Path

import numpy as np

from tfsparsecap.files import atomic_write

from .cases import Kind, Prepared
from .formats import Formats, written
from .inputs import FEATURE_SIZE, SIDE, Inputs
from .mutations import copy

# Data kind, caption file, and other files that are read with it.
_TABLES = (
    ("table", "captions.csv", ()),
    ("table", "metadata.jsonl", ()),
    ("flickr", "captions.txt", ("train.txt", "val.txt", "test.txt")),
    ("flickr", "Flickr8k.token.txt", ("train.txt", "val.txt", "test.txt")),
    ("flickr", "results.csv", ()),
    ("coco", "dataset_coco.json", ()),
    ("coco", "annotations/captions_train2014.json", ("annotations/instances_train2014.json",)),
)
_SEPARATORS = {"Flickr8k.token.txt": "\t", "results.csv": "|"}
_OVERRIDES = ("name", "seed", "data.folder", "data.max_length", "training.epochs", "model.kind")


def _image(inputs: Inputs, folder: Path, damage: Formats) -> Prepared:
    from tfsparsecap.data.images import read_view

    random = damage.random
    source = random.choice(sorted(inputs.images.iterdir()))
    path, size, view = folder / source.name, random.choice((16, 32, 300)), random.choice((0, 0, 1, 2))
    copy(source, path)
    others = sorted(inputs.images.iterdir())

    def spoil() -> None:
        if random.random() < 0.08:
            damage.file(path, others)
        else:
            written(path, damage.bytes)

    def read() -> None:
        assert read_view(path, size, view, "name").shape == (size, size, 3)

    return Prepared(read, f"read_view({source.name}, {size}, view={view})", spoil)


def _table(inputs: Inputs, folder: Path, damage: Formats) -> Prepared:
    from tfsparsecap.data import load
    from tfsparsecap.data.tokenizers import WordTokenizer

    random = damage.random
    kind, name, more = random.choice(_TABLES)
    data, bad = folder / "data", random.choice(("skip", "skip", "fail"))
    copy(inputs.data / "Images", data / "Images")
    for file in (name, *more):
        copy(inputs.data / file, data / file)
    tokenize = random.random() < 0.2

    def spoil() -> None:
        target = data / (random.choice((name, *more)) if random.random() < 0.5 else name)
        roll = random.random()
        if roll < 0.08:
            damage.file(target, [inputs.data / "captions.csv", inputs.data / "dataset_coco.json"])
        elif roll < 0.12:
            damage.file(random.choice((data / "Images", data / "Images" / "image0.jpg")), [])
        elif name.endswith(".json"):
            written(target, damage.json)
        elif target.suffix == ".jsonl" and roll < 0.7:
            written(target, lambda content: _json_lines(content, damage))
        else:
            written(target, lambda content: damage.lines(content, _SEPARATORS.get(name, ",")))

    def read() -> None:
        found = load(kind, data, on_bad_record=bad)
        print(found.summary(), *found.notes)
        atomic_write(folder / "skipped.txt", "".join(f"{entry}\n" for entry in found.skipped))
        if tokenize:
            texts = [caption for record in found.records for caption in record.captions]
            WordTokenizer.from_captions(texts).save_to(folder)

    return Prepared(read, f"load({kind}), {name}, on_bad_record={bad}", spoil)


def _json_lines(content: bytes, damage: Formats) -> bytes:
    lines = content.split(b"\n")
    at = damage.random.randrange(len(lines) - 1)
    lines[at] = damage.json(lines[at]).replace(b"\n", b" ")
    return b"\n".join(lines)


def _settings(inputs: Inputs, folder: Path, damage: Formats) -> Prepared:
    from unittest import mock

    from tfsparsecap import study, train
    from tfsparsecap.settings.checks import check_settings

    random = damage.random
    copy(inputs.configs, folder / "configs")
    name = random.choice(("run.yaml",) * 5 + ("base.yaml",) * 2 + ("study.yaml",))
    argv = ["--config", str(folder / "configs" / name), "--runs", str(folder / "runs")]

    def spoil() -> None:
        if random.random() < 0.25 or name != "run.yaml":
            key = random.choice(_OVERRIDES)
            argv.append(random.choice((f"{key}={_value(damage)}", f"{key}={_value(damage)}", _value(damage))))
            if random.random() < 0.6:
                return
        target = folder / "configs" / random.choice((name, name, "run.yaml"))
        if random.random() < 0.08:
            damage.file(target, [inputs.configs / "study.yaml", inputs.configs / "base.yaml"])
        else:
            written(target, damage.yaml)

    def read() -> int | None:
        if name == "study.yaml":
            return study.main([*argv, "--dry-run"])

        def checked(config: object, **_: object) -> dict:
            check_settings(config)  # type: ignore[arg-type]
            return {"run": str(folder / "runs")}

        with mock.patch("tfsparsecap.training.run.train_run", checked):
            return train.main(argv)

    return Prepared(read, f"settings of {name}", spoil)


def _value(damage: Formats) -> str:
    """The value of a setting on the command line, where NUL is impossible."""
    yaml = damage.yaml(b"a: 1").decode("utf-8", "replace")
    value = damage.random.choice((damage.text(), json.dumps(damage.value()), yaml))
    return value.replace("\0", "")[:60000].encode("utf-8", "replace").decode()


def _features(inputs: Inputs, folder: Path, damage: Formats) -> Prepared:
    from tfsparsecap.data.region_features import RegionFeatures

    random = damage.random
    features = folder / "features"
    copy(inputs.data / "features", features)
    ids = [f"image{number}" for number in range(7)]
    boxes, pooled = random.random() < 0.5, random.random() < 0.5
    bad, size = random.choice(("skip", "fail")), random.choice((None, FEATURE_SIZE))

    def spoil() -> None:
        places = ["cocobu_att", "cocobu_att"] + ["cocobu_box_relative"] * boxes + ["cocobu_fc"] * pooled
        for _ in range(random.choice((1, 1, 3))):
            path = random.choice(sorted((features / random.choice(places)).iterdir()))
            if random.random() < 0.1:
                damage.file(path, [inputs.data / "captions.csv"])
            elif not path.is_file() or path.is_symlink():
                continue
            elif path.suffix == ".npz":
                written(path, lambda content: damage.zip(content, {".npy": damage.npy}))
            else:
                written(path, damage.npy)

    def read() -> None:
        found = RegionFeatures(
            features,
            ids,
            feature_size=size,
            max_regions=4,
            on_bad_record=bad,
            need_boxes=boxes,
            need_pooled=pooled,
        )
        for index in np.flatnonzero(found.usable):
            found.fetch(index, 4)

    return Prepared(read, f"RegionFeatures(on_bad_record={bad}, boxes={boxes}, pooled={pooled})", spoil)


def _cache(inputs: Inputs, folder: Path, damage: Formats) -> Prepared:
    from tfsparsecap.data.feature_cache import cached_features
    from tfsparsecap.data.image_sources import FeatureCacheSource

    random = damage.random
    copy(inputs.cache, folder / "cache")

    def spoil() -> None:
        path = random.choice(sorted((folder / "cache").iterdir()))
        if random.random() < 0.15:
            damage.file(path, [inputs.data / "captions.csv"])
        else:
            written(path, damage.json if path.suffix == ".json" else damage.npy)

    def read() -> None:
        records, encoder = inputs.image_records, inputs.encoder
        cache = cached_features(records, encoder, SIDE, folder / "cache", progress=False)
        FeatureCacheSource(records, cache).fetch(np.arange(len(records)))

    # A damaged cache is computed again.
    return Prepared(read, "cached_features", spoil, reads_only=False)


def _results(inputs: Inputs, folder: Path, damage: Formats) -> Prepared:
    from tfsparsecap import evaluate

    random = damage.random
    official = json.loads((inputs.data / "annotations/captions_train2014.json").read_text())
    rows = [{"image_id": row["id"], "caption": "a red star"} for row in official["images"]]
    files = {"results": rows, "references": official, "training-captions": official}
    argv = ["--metrics", random.choice(("BLEU,CIDEr", "BLEU", "ROUGE-L,CIDEr"))]
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
        argv += [f"--{name}", str(folder / f"{name}.json")]
    argv += ["--output", str(folder / "scores")] + ["--json"] * random.randrange(2)

    def spoil() -> None:
        path = folder / f"{random.choice(list(files))}.json"
        if random.random() < 0.06:
            damage.file(path, [inputs.data / "dataset_coco.json", inputs.data / "captions.csv"])
        else:
            written(path, damage.json)

    return Prepared(lambda: evaluate.main(argv), "evaluate --results … --references …", spoil)


KINDS = (
    Kind("image", _image, 1600, 95),
    Kind("table", _table, 1600, 85),
    Kind("settings", _settings, 1100, 50),
    Kind("features", _features, 900, 50),
    Kind("cache", _cache, 300, 15),
    Kind("results", _results, 600, 30),
)
