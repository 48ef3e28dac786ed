"""Kinds of cases that are about weights: files of other programs, and Keras's own."""

from pathlib import Path

from .cases import Kind, Prepared
from .formats import Damage, Formats, written
from .inputs import Inputs
from .mutations import copy


def _damage_of(name: str, damage: Formats) -> Damage:
    """How to damage a file of weights, by its name."""
    if name == "weights.pth":
        return lambda content: damage.zip(content, {".pkl": damage.pickled})
    if name.endswith(".keras"):
        members = {"config.json": damage.keras_json, "metadata.json": damage.json, ".h5": damage.h5}
        return lambda content: damage.zip(content, members)
    by_end = {".safetensors": damage.safetensors, ".h5": damage.h5, "legacy.pth": damage.pickled}
    return next((found for end, found in by_end.items() if name.endswith(end)), damage.bytes)


def _spoil(path: Path, inputs: Inputs, damage: Formats) -> None:
    if damage.random.random() < 0.08:
        damage.file(path, sorted(inputs.weights.iterdir()))
    else:
        written(path, _damage_of(path.name, damage))


def _weights(inputs: Inputs, folder: Path, damage: Formats) -> Prepared:
    from tfsparsecap.models.encoders.published_weights import load_weights

    source = damage.random.choice(sorted(inputs.weights.iterdir()))
    path = folder / source.name
    copy(source, path)

    def read() -> None:
        load_weights(inputs.network, path, "the network")

    return Prepared(read, f"load_weights({source.name})", lambda: _spoil(path, inputs, damage))


def _model(inputs: Inputs, folder: Path, damage: Formats) -> Prepared:
    from tfsparsecap_export.runs import load_model

    path = folder / "model.keras"
    copy(inputs.weights / "model.keras", path)
    read = lambda: load_model(path) and None  # noqa: E731
    return Prepared(read, "load_model(model.keras)", lambda: _spoil(path, inputs, damage))


def _convert(inputs: Inputs, folder: Path, damage: Formats) -> Prepared:
    from tfsparsecap import convert

    copy(inputs.published, folder / "published")
    argv = [str(folder / "published" / "model.pth"), "--output", str(folder / "runs" / "new"), "--json"]

    def spoil() -> None:
        path = folder / "published" / damage.random.choice(("model.pth", "config.json", "word.model"))
        if damage.random.random() < 0.08:
            damage.file(path, sorted(inputs.published.iterdir()))
        elif path.suffix == ".json":
            written(path, damage.json)
        elif path.suffix == ".pth":
            written(path, lambda content: damage.zip(content, {".pkl": damage.pickled}))
        else:
            written(path, damage.bytes)

    return Prepared(lambda: convert.main(argv), "convert model.pth", spoil)


KINDS = (
    Kind("weights", _weights, 900, 45),
    Kind("model", _model, 400, 20),
    Kind("convert", _convert, 300, 15),
)
