"""Kinds of cases that are about runs: their folders, checkpoints, models, exported files and reports."""

import io
import json
import zipfile
from pathlib import Path

from .cases import Kind, Prepared
from .formats import Damage, Formats, written
from .inputs import Inputs
from .mutations import copy

# What evaluates, captions and reports read of a run folder.
_RUN_FILES = ("config.yaml", "vocabulary.txt", "model.keras")
_REPORT_FILES = ("config.yaml", "history.csv", "scores_test.json", "captions_test.json")


def _damage_of(path: Path, damage: Formats) -> Damage:
    """How to damage a file of a run folder, by its name."""
    if path.suffix in (".keras", ".npz"):
        members = {".npy": damage.npy, "config.json": damage.keras_json, "metadata.json": damage.json}
        return lambda content: damage.zip(content, {**members, ".h5": damage.h5})
    return {".yaml": damage.yaml, ".json": damage.json}.get(path.suffix, damage.lines)


def _spoil(path: Path, inputs: Inputs, damage: Formats, share: float = 0.1) -> None:
    if damage.random.random() < share:
        damage.file(path, [inputs.data / "captions.csv", inputs.data / "dataset_coco.json"])
    else:
        written(path, _damage_of(path, damage))


def _run(inputs: Inputs, folder: Path, damage: Formats) -> Prepared:
    from tfsparsecap import caption, evaluate

    random, run = damage.random, folder / "run"
    for name in _RUN_FILES:
        copy(inputs.run / name, run / name)
    argv = [str(run), "--features", str(inputs.data / "features"), "image0", "image1"]
    argv += random.choice(([], ["--beam", "2"], ["--sample", "2", "--seed", "1"], ["--plain"]))
    main = caption.main
    if random.random() < 0.2:
        argv = [str(run), "--data", str(inputs.data), "--metrics", "BLEU,CIDEr", "--output", str(folder)]
        main = evaluate.main
    argv += ["--json"] * random.randrange(2)

    def spoil() -> None:
        _spoil(run / random.choice((*_RUN_FILES, "model.keras", "model.keras")), inputs, damage)

    return Prepared(lambda: main(argv), f"{main.__module__} {' '.join(argv[1:])}", spoil)


def _checkpoint(inputs: Inputs, folder: Path, damage: Formats) -> Prepared:
    from tfsparsecap.runs.checkpoints import load_checkpoint, load_part, load_weights, newest_intact

    random = damage.random
    copy(inputs.run / "checkpoints", folder / "checkpoints")
    newest = folder / "checkpoints" / "epoch-0002.npz"
    initial = folder / "checkpoints" / "initial.npz"
    reads = random.choice(("load", "load", "resume", "part", "initial"))

    def spoil() -> None:
        _spoil(initial if reads == "initial" else newest, inputs, damage)

    def read() -> None:
        model = inputs.captioner
        if reads == "initial":
            load_weights(initial, inputs.plain_captioner)
        elif reads == "part":
            load_part(newest, model.embedding)
        elif reads == "load":
            load_checkpoint(newest, model)
        else:
            # Whatever happens to the newest one, the one before it is intact.
            path, _ = newest_intact([newest.with_name("epoch-0001.npz"), newest], ["train"])
            assert path is not None

    return Prepared(read, f"checkpoints, {reads}", spoil)


def _resume(inputs: Inputs, folder: Path, damage: Formats) -> Prepared:
    from tfsparsecap import train

    random = damage.random
    finished = random.random() < 0.3
    copy(inputs.run if finished else inputs.interrupted, folder / "run")
    # The settings of the command are those that the run was started with; the run's own may be damaged.
    own = random.random() < 0.5
    argv = ["--config", str(folder / "run" / "config.yaml")] if own else list(inputs.settings)
    argv += ["--resume", "--runs", str(folder), "--quiet"]

    def spoil() -> None:
        files = [path for path in sorted((folder / "run").rglob("*")) if path.is_file()]
        if own:  # settings can ask for a long training
            files.remove(folder / "run" / "config.yaml")
        checkpoints = [path for path in files if path.suffix == ".npz"]
        _spoil(random.choice((random.choice(files), random.choice(checkpoints))), inputs, damage)

    return Prepared(lambda: train.main(argv), "train --resume", spoil, reads_only=False)


def _report(inputs: Inputs, folder: Path, damage: Formats) -> Prepared:
    from unittest import mock

    import matplotlib.font_manager  # noqa: F401 (its first import writes a cache)

    from tfsparsecap import report

    random, run = damage.random, folder / "run"
    for name in _REPORT_FILES:
        copy(inputs.run / name, run / name)
    copy(inputs.exported, run / "model.tflite")
    argv = [str(run), "--output", str(folder / "report.html"), "--images", "2", "--data", str(inputs.data)]
    with_figures = random.random() < 0.1

    def spoil() -> None:
        path = run / random.choice((*_REPORT_FILES, *_REPORT_FILES, "model.tflite"))
        if path.suffix == ".tflite":
            written(path, lambda content: exported_damage(content, damage))
        else:
            _spoil(path, inputs, damage, 0.06)

    def read() -> None:
        if with_figures:
            report.main(argv)
            return
        with mock.patch("tfsparsecap.reports.page.curves", lambda runs: None):
            report.main(argv)

    return Prepared(read, "report", spoil)


def exported_damage(content: bytes, damage: Formats) -> bytes:
    """An exported file with a damaged description, vocabulary or archive; its graph stays as it is."""
    start = content.index(b"PK\3\4")
    graph, archive = content[:start], content[start:]
    members = {".json": damage.json, ".txt": damage.lines}
    return graph + damage.zip(archive, members)


def _tflite(inputs: Inputs, folder: Path, damage: Formats) -> Prepared:
    from tfsparsecap import caption
    from tfsparsecap.inference.bundle import TFLiteCaptioner

    random, path = damage.random, folder / "model.tflite"
    copy(inputs.exported, path)
    command = random.random() < 0.3
    argv = [str(path), "--features", str(inputs.data / "features"), "image0", "--json"]

    def spoil() -> None:
        if random.random() < 0.1:
            damage.file(path, [inputs.data / "captions.csv"])
        else:
            written(path, lambda content: exported_damage(content, damage))

    def read() -> int | None:
        if command:
            return caption.main(argv)
        TFLiteCaptioner(path).generate(inputs.features)
        return None

    return Prepared(read, "caption model.tflite", spoil)


def _isolated(inputs: Inputs, folder: Path, damage: Formats) -> Prepared:
    from tfsparsecap.inference.bundle import TFLiteCaptioner
    from tfsparsecap.inference.digests import DIGESTS

    path = folder / "model.tflite"
    content = inputs.exported.read_bytes()
    start = content.index(b"PK\3\4")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    description = json.loads(files["captioner.json"])
    files["captioner.json"] = json.dumps(
        {key: value for key, value in description.items() if key not in DIGESTS}
    ).encode()

    def write(graph: bytes) -> None:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            for name, inside in files.items():
                archive.writestr(name, inside)
        path.write_bytes(graph + out.getvalue())

    def read() -> None:
        captioner = TFLiteCaptioner(path)
        assert captioner.isolated
        captioner.generate(inputs.features)

    write(content[:start])
    # The identifier stays, without which the file is none.
    spoil = lambda: write(content[:8] + damage.bytes(content[8:start]))  # noqa: E731
    return Prepared(read, "caption model.tflite without a digest", spoil)


def _inspect(inputs: Inputs, folder: Path, damage: Formats) -> Prepared:
    from tfsparsecap_export import inspect

    random, path = damage.random, folder / "model.tflite"
    copy(inputs.exported, path)
    argv = [str(path)] + ["--json"] * (random.random() < 0.8)

    def spoil() -> None:
        if random.random() < 0.05:
            damage.file(path, [inputs.data / "captions.csv"])
        else:
            written(path, damage.bytes)

    return Prepared(lambda: inspect.main(argv), "inspect model.tflite", spoil)


KINDS = (
    Kind("run", _run, 600, 25),
    Kind("checkpoint", _checkpoint, 500, 30),
    Kind("resume", _resume, 200, 3),
    Kind("report", _report, 300, 8),
    Kind("tflite", _tflite, 300, 14),
    Kind("isolated", _isolated, 100, 2),
    Kind("inspect", _inspect, 300, 13),
)
