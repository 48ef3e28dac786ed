"""The valid files of each kind, made once, small and from a fixed seed, and what reads them."""

import base64
import functools
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from PIL import Image

from tests.captioning.data.test_sentencepiece import CONTROL, UNKNOWN, WORD, model
from tests.core.weight_files.torch_files import write_legacy, write_onnx, write_state_dict

from .damage import Damage
from .session import Case

WORDS = ("red", "blue", "green", "circle", "square", "star")
FEATURE_SIZE, SIDE, SEED = 5, 16, 5
_IMAGES = (".jpg", ".png", ".gif", ".bmp", ".webp", ".tif", ".ppm", ".jp2", ".tga", ".ico", ".pcx")
# Data kind and its files: the captions, and others that are read with them.
_TABLES = (
    ("table", "captions.csv"),
    ("table", "metadata.jsonl"),
    ("flickr", "captions.txt", "train.txt", "val.txt", "test.txt"),
    ("flickr", "Flickr8k.token.txt", "train.txt", "val.txt", "test.txt"),
    ("flickr", "results.csv"),
    ("coco", "dataset_coco.json"),
    ("coco", "annotations/captions_train2014.json", "annotations/instances_train2014.json"),
)
_STUDY = """name: study
config: base.yaml
sparsities: [0.5, 0.9]
seeds: [1, 2]
methods:
  Dense:
    settings: {pruning: null}
  SMP:
    settings:
      pruning.method: supermask
"""


class Kind(NamedTuple):
    """A kind of input.

    Attributes:
        make: writes a case into a folder.
        cases: of `make fuzz`; continuous integration runs a twentieth.
    """

    make: Callable[[Path, Damage], Case]
    cases: int


@functools.cache
def root() -> Path:
    """The folder of the valid files, which ends with the process."""
    folder = tempfile.TemporaryDirectory(prefix="fuzz-", dir="/tmp", ignore_cleanup_errors=True)
    root.folder = folder  # type: ignore[attr-defined]  # keeps it until then
    return Path(folder.name).resolve()


def _random() -> np.random.Generator:
    return np.random.default_rng(SEED)


def _pixels() -> np.ndarray:
    return _random().integers(0, 256, (SIDE, SIDE, 3), np.uint8)


def _copy(source: Path, target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    return Path((shutil.copytree if source.is_dir() else shutil.copyfile)(source, target))


@functools.cache
def images() -> list[Path]:
    """An image in each format."""
    folder = root() / "images"
    folder.mkdir()
    for suffix in _IMAGES:
        Image.fromarray(_pixels()).save(folder / f"image{suffix}")
    exif = Image.Exif()
    exif[0x0112] = 6  # turned
    Image.fromarray(_pixels()).save(folder / "turned.jpg", exif=exif)
    Image.fromarray(_pixels()[..., 0].astype(np.uint16) * 257).save(folder / "deep.png")
    Image.fromarray(_pixels()).convert("P").save(folder / "palette.png", transparency=3)
    return sorted(folder.iterdir())


def _image(folder: Path, damage: Damage) -> Case:
    from tfsparsecap.captioning.data.augmentation import read_view

    path = _copy(source := damage.random.choice(images()), folder / source.name)
    size, view = damage.random.choice((16, 32, 300)), damage.random.choice((0, 0, 1, 2))
    return Case(lambda: read_view(path, size, view, "name") is None, [path])


@functools.cache
def data() -> Path:
    """A folder of images, captions in every format, and region features."""
    folder, random = root() / "data", _random()
    splits = ["train"] * 4 + ["val", "test", "test"]
    names = [f"image{number}.jpg" for number in range(len(splits))]
    rows = [(name, "a {}, and a {}".format(*random.choice(WORDS, 2))) for name in names for _ in range(2)]
    split_of = dict(zip(names, splits, strict=True))
    for name in ("cocobu_att", "cocobu_fc", "cocobu_box_relative", "../Images", "../annotations"):
        (folder / "features" / name).mkdir(parents=True)
    for number, name in enumerate(names):
        Image.fromarray(_pixels() + np.uint8(number)).save(folder / "Images" / name)
        features = random.random((3, FEATURE_SIZE), np.float32)
        save = np.savez if number % 2 else np.save
        save(folder / f"features/cocobu_att/{name[:-4]}", features)
        np.save(folder / f"features/cocobu_fc/{name[:-4]}.npy", features.mean(axis=0))
        corners = np.sort(random.random((3, 2, 2), np.float32), axis=1)
        np.save(folder / f"features/cocobu_box_relative/{name[:-4]}.npy", corners.reshape(3, 4))
    described = [
        {"image": name, "caption": text, "split": split_of[name], "labels": WORDS[:2]} for name, text in rows
    ]
    entries = []
    for number, name in enumerate(names):
        sentences = [{"raw": text, "tokens": text.split()} for image, text in rows if image == name]
        entries.append({"filename": name, "filepath": "Images", "cocoid": number, "sentences": sentences})
        entries[-1]["split"] = split_of[name]
    numbered = [{"id": number, "file_name": name} for number, name in enumerate(names)]
    annotations = [
        {"id": place, "image_id": names.index(name), "caption": text}
        for place, (name, text) in enumerate(rows)
    ]
    objects = [{"image_id": number, "category_id": number % 2} for number in range(len(names))]
    categories = [{"id": number, "name": word} for number, word in enumerate(WORDS[:2])]
    instances = {"images": numbered, "annotations": objects, "categories": categories}
    files = {
        "captions.csv": [
            "image,caption,split",
            *(f'{name},"{text}",{split_of[name]}' for name, text in rows),
        ],
        "metadata.jsonl": [json.dumps(row) for row in described],
        "captions.txt": ["image,caption", *(f'{name},"{text}"' for name, text in rows)],
        "Flickr8k.token.txt": [f"{name}#{place % 2}\t{text}" for place, (name, text) in enumerate(rows)],
        "results.csv": [
            "image_name| comment_number| comment",
            *(f"{name}| {place % 2}| {text}" for place, (name, text) in enumerate(rows)),
        ],
        **{f"{split}.txt": [name for name in names if split_of[name] == split] for split in set(splits)},
        "dataset_coco.json": [json.dumps({"images": entries, "dataset": "coco"})],
        "annotations/captions_train2014.json": [json.dumps({"images": numbered, "annotations": annotations})],
        "annotations/instances_train2014.json": [json.dumps(instances)],
    }
    for name, lines in files.items():
        (folder / name).write_text("\n".join(lines) + "\n")
    return folder


def _table(folder: Path, damage: Damage) -> Case:
    from tfsparsecap.captioning.data import load
    from tfsparsecap.captioning.data.tokenizers import WordTokenizer

    random = damage.random
    kind, *names = random.choice(_TABLES)
    bad, tokenize = random.choice(("skip", "skip", "fail")), random.random() < 0.2
    pictures = _copy(data() / "Images", folder / "data" / "Images")
    files = [_copy(data() / name, folder / "data" / name) for name in names]

    def read() -> None:
        dataset = load(kind, folder / "data", on_bad_record=bad)
        print(dataset.summary(), *dataset.notes, *dataset.skipped)
        if tokenize:
            texts = [caption for record in dataset.records for caption in record.captions]
            WordTokenizer.from_captions(texts).save_to(folder)

    return Case(read, [files[0]] * 8 + files[1:] + [pictures, pictures / "image0.jpg"])


def _settings(folder: Path, damage: Damage) -> Case:
    from tfsparsecap import study, train
    from tfsparsecap.captioning.settings.config_files import load_config, save_config
    from tfsparsecap.captioning.settings.contradictions import check_settings

    random, configs = damage.random, folder / "configs"
    configs.mkdir()
    (configs / "run.yaml").write_text(save_config(load_config(None, settings())))
    (configs / "base.yaml").write_text("extends: run.yaml\nname: other\nmodel: {rnn_size: 16}\nseed: 3\n")
    (configs / "study.yaml").write_text(_STUDY)
    name = random.choice(("run.yaml",) * 4 + ("base.yaml", "study.yaml"))
    argv = ["--config", str(configs / name), "--runs", str(folder / "runs")]

    def override() -> None:
        key = random.choice(("name=", "seed=", "data.folder=", "data.max_length=", "training.epochs=", ""))
        value = damage.yaml_value().replace("\0", "")[:60000].encode("utf-8", "replace").decode()
        argv.append(key + value)

    def read() -> int | None:
        if name == "study.yaml":
            return study.main([*argv, "--dry-run"])

        def checked(config: Any, **_: Any) -> dict:
            check_settings(config)
            return {"run": str(folder / "runs")}

        with mock.patch("tfsparsecap.captioning.training.train_run.train_run", checked):
            return train.main(argv)

    return Case(read, [configs / name, configs / name, configs / "run.yaml", override])


def _features(folder: Path, damage: Damage) -> Case:
    from tfsparsecap.captioning.data.region_features import RegionFeatures

    random = damage.random
    features = _copy(data() / "features", folder / "features")
    boxes, pooled = random.random() < 0.5, random.random() < 0.5
    options = {"on_bad_record": random.choice(("skip", "fail")), "need_boxes": boxes, "need_pooled": pooled}
    size = random.choice((None, FEATURE_SIZE))

    def read() -> None:
        ids = [f"image{number}" for number in range(7)]
        regions = RegionFeatures(features, ids, feature_size=size, max_regions=4, **options)
        for index in np.flatnonzero(regions.usable):
            regions.fetch(index, 4)

    kinds = ["cocobu_att", *["cocobu_box_relative"] * boxes, *["cocobu_fc"] * pooled]
    return Case(read, [path for kind in kinds for path in sorted((features / kind).iterdir())])


@functools.cache
def encoder() -> Any:
    """A Keras layer that encodes the images."""
    import keras

    keras.utils.set_random_seed(SEED)
    layers = (
        keras.layers.Conv2D(4, 8, strides=8, name="patches"),
        keras.layers.Reshape((4, 4), name="regions"),
    )
    network = keras.Sequential(layers, name="encoder")
    network.build((None, SIDE, SIDE, 3))
    return network


def _cache(folder: Path, damage: Damage) -> Case:
    from tfsparsecap.captioning.data import load
    from tfsparsecap.captioning.data.feature_cache import cached_features
    from tfsparsecap.captioning.data.image_sources import FeatureCacheSource

    records = load("table", data(), "captions.csv").records
    cached_features(records, encoder(), SIDE, folder / "cache", progress=False)

    def read() -> None:
        cache = cached_features(records, encoder(), SIDE, folder / "cache", progress=False)
        FeatureCacheSource(records, cache).fetch(np.arange(len(records)))

    # A damaged cache is computed again.
    return Case(read, sorted((folder / "cache").iterdir()), reads_only=False)


def _results(folder: Path, damage: Damage) -> Case:
    from tfsparsecap import evaluate

    official = data() / "annotations/captions_train2014.json"
    rows = [
        {"image_id": row["id"], "caption": "a red star"} for row in json.loads(official.read_text())["images"]
    ]
    (folder / "results.json").write_text(json.dumps(rows))
    argv = [
        "--metrics",
        damage.random.choice(("BLEU,CIDEr", "ROUGE-L,CIDEr")),
        "--output",
        str(folder / "scores"),
    ]
    paths = [folder / "results.json"]
    paths += [_copy(official, folder / f"{name}.json") for name in ("references", "training-captions")]
    for path in paths:
        argv += [f"--{path.stem}", str(path)]
    return Case(lambda: evaluate.main(argv), list(paths))


def settings() -> list[str]:
    """Settings of a tiny captioner of region features, pruned; a training takes a second."""
    return f"""name=run data.kind=table data.folder={data()} data.features={data()}/features
        data.max_length=5 data.max_regions=4 model.kind=up_down model.encoder=null
        model.feature_size={FEATURE_SIZE}
        model.embedding_size=4 model.rnn_size=8 model.attention_size=4 training.epochs=2 training.batch_size=4
        training.keep_initial=true pruning.sparsity=0.5 decoding.beam=2""".split()


@functools.cache
def finished() -> Path:
    """The folder of a finished run, with its exported file."""
    from tfsparsecap_export.exporter import CaptionOptions, export_model

    from tfsparsecap.captioning.inference.finished_run import FinishedRun
    from tfsparsecap.captioning.settings.config_files import load_config
    from tfsparsecap.captioning.training.train_run import train_run

    train_run(load_config(None, settings()), runs=root(), verbose=0, report=str)
    (root() / "run" / "skipped.txt").write_text("nothing.jpg: there is no such image\n")
    run = FinishedRun.load(root() / "run")
    shape = (run.max_regions, FEATURE_SIZE)
    samples = [{"features": _random().random((1, *shape), np.float32)}]
    options = CaptionOptions(beam=2, max_length=5, tokenizer=run.tokenizer, tolerance=1.0)
    inputs = {"inputs": {"features": shape}, "samples": samples}
    export_model(run.captioner, root() / "model.tflite", "dense", captions=options, **inputs)
    return root() / "run"


@functools.cache
def captioner(gated: bool) -> Any:
    """The run's captioner, with gates as its checkpoints hold it; cases may change its weights."""
    from tfsparsecap.captioning.runs.run_folder import RunFolder
    from tfsparsecap.captioning.settings.build import make_captioner
    from tfsparsecap.captioning.training.run_pruning import gate_captioner

    folder = RunFolder(finished())
    config = folder.load_config()
    made = make_captioner(config, folder.load_tokenizer())
    if gated:
        gate_captioner(made, config, 4, restored=True)
    return made


def _run(folder: Path, damage: Damage) -> Case:
    from tfsparsecap import caption, evaluate

    random, names = damage.random, ("config.yaml", "vocabulary.txt", "model.keras", "model.keras")
    files = [_copy(finished() / name, folder / "run" / name) for name in names]
    argv = [str(folder / "run"), "--features", str(data() / "features"), "image0", "image1"]
    argv += random.choice(([], ["--beam", "2"], ["--sample", "2", "--seed", "1"], ["--plain"]))
    if random.random() < 0.2:
        argv = f"{folder}/run --data {data()} --metrics BLEU,CIDEr --output {folder}".split()
        return Case(lambda: evaluate.main(argv), list(files))
    return Case(lambda: caption.main(argv), list(files))


def _checkpoint(folder: Path, damage: Damage) -> Case:
    from tfsparsecap.captioning.runs.checkpoints import (
        load_checkpoint,
        load_part,
        newest_intact,
        restore_weights,
    )

    first, newest, initial = (
        _copy(finished() / "checkpoints" / name, folder / name)
        for name in ("epoch-0001.npz", "epoch-0002.npz", "initial.npz")
    )
    reads = {
        "load": lambda: load_checkpoint(newest, captioner(True)) is NotImplemented,
        "part": lambda: load_part(newest, captioner(True).embedding),
        "initial": lambda: restore_weights(initial, captioner(False)) is NotImplemented,
        # Whatever happens to the newest one, the one before it is intact.
        "resume": lambda: newest_intact([first, newest], ["train"])[0] is None,
    }
    name = damage.random.choice(list(reads))
    captioner(True), captioner(False)
    return Case(reads[name], [initial if name == "initial" else newest])


def _resume(folder: Path, damage: Damage) -> Case:
    from tfsparsecap import train

    random, run = damage.random, _copy(finished(), folder / "run")
    if random.random() < 0.7:  # stopped after the first epoch
        for name in ("checkpoints/epoch-0002.npz", "model.keras", "scores_test.json", "captions_test.json"):
            (run / name).unlink()
    # The settings of the command are those that the run was started with; the run's own may be damaged.
    own = random.random() < 0.5
    argv = ["--config", str(run / "config.yaml")] if own else settings()
    argv = [*argv, "--resume", "--runs", str(folder), "--quiet"]
    files = [path for path in sorted(run.rglob("*")) if path.is_file()]
    if own:  # settings can ask for a long training
        files.remove(run / "config.yaml")
    checkpoints = [path for path in files if path.suffix == ".npz"]
    return Case(lambda: train.main(argv), [*files, *checkpoints * 3], reads_only=False)


def _report(folder: Path, damage: Damage) -> Case:
    import matplotlib.font_manager  # noqa: F401 (its first import writes a cache)

    from tfsparsecap import report

    names = ("config.yaml", "history.csv", "scores_test.json", "captions_test.json")
    files = [_copy(finished() / name, folder / "run" / name) for name in names]
    files.append(_copy(root() / "model.tflite", folder / "run" / "model.tflite"))
    argv = f"{folder}/run --output {folder}/report.html --images 2 --data {data()}".split()

    def read() -> int | None:
        with mock.patch("tfsparsecap.captioning.html_report.page.curves", lambda runs: None):
            return report.main(argv)

    return Case(read, list(files))


def _tflite(folder: Path, damage: Damage) -> Case:
    from tfsparsecap import caption

    path = _copy(finished().parent / "model.tflite", folder / "model.tflite")
    argv = [str(path), "--features", str(data() / "features"), "image0", "--json"]
    # The graph stays as it is.
    argv += ["--trust"] * (damage.random.random() < 0.5)
    return Case(lambda: caption.main(argv), [path])


def _inspect(folder: Path, damage: Damage) -> Case:
    from tfsparsecap_export import inspect

    path = _copy(finished().parent / "model.tflite", folder / "model.tflite")
    argv = [str(path), *["--json"] * (damage.random.random() < 0.8)]

    def anywhere() -> None:
        path.write_bytes(damage.bytes(path.read_bytes()))

    return Case(lambda: inspect.main(argv), [path, anywhere, anywhere, anywhere])


@functools.cache
def network() -> Any:
    """A small network with the layers that encoders have."""
    import keras

    keras.utils.set_random_seed(SEED)
    image = keras.Input((8, 8, 3), name="image")
    hidden = keras.layers.BatchNormalization(name="norm")(keras.layers.Conv2D(4, 3, name="stem")(image))
    hidden = keras.layers.GlobalAveragePooling2D(name="pool")(hidden)
    return keras.Model(image, keras.layers.Dense(5, name="head")(hidden), name="network")


@functools.cache
def weights() -> list[Path]:
    """The weights of `network` in every format."""
    import safetensors.numpy

    folder = root() / "weights"
    folder.mkdir()
    names = ("stem.weight", "stem.bias", "norm.weight", "norm.bias", "norm.running_mean", "norm.running_var")
    arrays = dict(zip((*names, "head.weight", "head.bias"), network().get_weights(), strict=True))
    arrays["stem.weight"] = arrays["stem.weight"].transpose(3, 2, 0, 1)
    arrays["head.weight"] = arrays["head.weight"].T
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    safetensors.numpy.save_file(arrays, folder / "weights.safetensors")
    write_state_dict(folder / "weights.pth", arrays)
    write_legacy(folder / "legacy.pth", arrays)
    write_onnx(
        folder / "weights.onnx", arrays, [("Conv", "/stem/Conv", ["image", "stem.weight", "stem.bias"])]
    )
    network().save(folder / "model.keras")
    network().save_weights(folder / "model.weights.h5")
    return sorted(folder.iterdir())


def _weights(folder: Path, damage: Damage) -> Case:
    from tfsparsecap.captioning.models.image_encoders.published_weights import load_weights

    path = _copy(source := damage.random.choice(weights()), folder / source.name)
    return Case(lambda: load_weights(network(), path, "the network"), [path])


def _model(folder: Path, damage: Damage) -> Case:
    from tfsparsecap_export.model_sources import load_keras_file

    path = _copy(weights()[0].with_name("model.keras"), folder / "model.keras")
    return Case(lambda: load_keras_file(path) is None, [path])


@functools.cache
def published() -> Path:
    """A published checkpoint with its configuration and its SentencePiece model."""
    from tfsparsecap.papers.published import published_arrays, published_captioner

    folder = root() / "published"
    folder.mkdir()
    special = [("<pad>", CONTROL), ("<unk>", UNKNOWN), ("<s>", CONTROL), ("</s>", CONTROL)]
    config = {
        **{"caption_model": "up_down_lstm_prune", "vocab_size": len(special) + len(WORDS), "rnn_size": 6},
        **{"input_encoding_size": 4, "att_hid_size": 5, "att_feat_size": FEATURE_SIZE, "logit_layers": 2},
        **{"drop_prob_lm": 0.5, "max_seq_length": 8, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3},
        "beam_size_test": 2,
    }
    write_state_dict(folder / "model.pth", published_arrays(published_captioner(config)))
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "word.model").write_bytes(model(WORD, [f"\u2581{word}" for word in WORDS], special))
    return folder


@functools.cache
def bottom_up() -> list[Path]:
    """Region features as they are published: a TSV, and an archive."""
    features, folder = data() / "features", root() / "bottom_up"
    folder.mkdir()
    with (folder / "features.tsv").open("w") as file:
        for path in sorted((features / "cocobu_box_relative").iterdir()):
            arrays = np.load(path) * SIDE, _random().random((3, FEATURE_SIZE), np.float32)
            texts = [base64.b64encode(array.astype(np.float32)).decode() for array in arrays]
            print(path.stem, SIDE, SIDE, 3, *texts, sep="\t", file=file)
    shutil.make_archive(str(folder / "archive"), "zip", features)
    return [folder / "features.tsv", folder / "archive.zip"]


def _convert(folder: Path, damage: Damage) -> Case:
    from tfsparsecap import convert

    if damage.random.random() < 0.5:
        path = _copy(source := damage.random.choice(bottom_up()), folder / source.name)
        argv = [str(path), "--output", str(folder / "new"), "--json"]
        return Case(lambda: convert.main(argv), [path])
    files = sorted(_copy(published(), folder / "published").iterdir())
    argv = [str(folder / "published" / "model.pth"), "--output", str(folder / "runs" / "new"), "--json"]
    return Case(lambda: convert.main(argv), list(files))


KINDS = {
    "image": Kind(_image, 1700),
    "table": Kind(_table, 1700),
    "settings": Kind(_settings, 1200),
    "features": Kind(_features, 900),
    "cache": Kind(_cache, 300),
    "results": Kind(_results, 600),
    "weights": Kind(_weights, 1000),
    "model": Kind(_model, 400),
    "convert": Kind(_convert, 300),
    "run": Kind(_run, 600),
    "checkpoint": Kind(_checkpoint, 500),
    "resume": Kind(_resume, 100),
    "report": Kind(_report, 200),
    "tflite": Kind(_tflite, 200),
    "inspect": Kind(_inspect, 300),
}
