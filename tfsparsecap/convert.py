"""python -m tfsparsecap.convert: published checkpoints and bottom-up features, without PyTorch.

Converts a checkpoint of the original implementation (Up-Down, Object Relation Transformer, ACORT; dense,
sparse, or with gates) to a run folder for evaluate, caption and tfsparsecap-export. No code in the file
is executed, and PyTorch is not needed. TSV files or zip archives of published bottom-up features become a
folder for data.features.

examples:
  python -m tfsparsecap.convert UpDown/model_best_pruned_sparse.pth --output runs/updown
      config.json and the SentencePiece model are next to it
  python -m tfsparsecap.convert model.pth --output runs/acort --config c.json --tokenizer word.model
      if they are in other places
  python -m tfsparsecap.caption runs/updown --features FOLDER 391895
      then: caption images from their bottom-up features
  python -m tfsparsecap.convert karpathy_*.tsv* --output COCO/bu --data COCO
      bottom-up features of all images of dataset_coco.json, or nothing
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tfsparsecap.command import only_json_on_stdout, parser, print_table, run, start_tensorflow
from tfsparsecap.core.files import read_json
from tfsparsecap.errors import InputError, error_prefix

#: Endings of PyTorch's checkpoints.
CHECKPOINTS = (".pth", ".pt", ".bin", ".ckpt")
#: Where to find a checkpoint's tokenizer, relative to its folder.
TOKENIZERS = ("tokenizer/*.model", "*.model")
#: Sizes in a published configuration; none can be larger than the longest axis of a tensor.
_SIZES = (
    "vocab_size",
    "rnn_size",
    "input_encoding_size",
    "att_hid_size",
    "att_feat_size",
    "d_model",
    "dim_feedforward",
)
#: Default and largest number of tokens in a caption.
_DEFAULT_LENGTH, _LONGEST = 16, 5000


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the command line."""
    options = parser(__doc__)
    options.add_argument(
        "files", type=Path, nargs="+", metavar="FILE", help="a checkpoint, .pth, or features, .tsv or .zip"
    )
    options.add_argument(
        "--output",
        type=Path,
        required=True,
        metavar="FOLDER",
        help="the new run folder, runs/NAME, or features",
    )
    options.add_argument("--config", type=Path, metavar="FILE.json", help="default: config.json next to it")
    options.add_argument(
        "--tokenizer", type=Path, metavar="FILE.model", help="SentencePiece model; default: next to it"
    )
    options.add_argument(
        "--data",
        metavar="FOLDER",
        help="captions to evaluate on (data.folder of the run); for features, captions in one of MS-COCO's"
        " formats, all of whose images must be there",
    )
    options.add_argument("--features", metavar="FOLDER", help="bottom-up features (data.features of the run)")
    options.add_argument("--json", action="store_true", help="print the result as JSON")
    return options.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Raises:
        InputError: a file is missing, damaged or belongs to another captioner, or the output folder exists.
            Nothing is written then.
    """
    options = arguments(argv)
    features = [_has_features(file) for file in options.files]
    if any(features):
        if not all(features) or options.config or options.tokenizer or options.features:
            raise InputError(
                "features are converted by themselves: leave out checkpoints, --config, --tokenizer and"
                " --features"
            )
        return _main_of_features(options)
    if len(options.files) > 1:
        raise InputError(f"{len(options.files)} checkpoints were given: convert one at a time")
    (checkpoint,) = options.files
    with only_json_on_stdout(options.json):
        made = convert(
            checkpoint, options.output, options.config, options.tokenizer, options.data, options.features
        )
        if not options.json:
            print_table(
                str(options.output),
                [
                    ("captioner", made["captioner"]),
                    ("parameters", _spaced(made["parameters"])),
                    ("sparsity", f"{made['sparsity']:.2%}, {_spaced(made['nonzero_weights'])} non-zero"),
                    ("tokens", f"{made['tokens']}, at most {made['max_length']} per caption"),
                ],
            )
    if options.json:
        print(json.dumps(made))
    return 0


def _check_no_folder(file: Path) -> None:
    if file.is_dir():
        raise InputError(
            f"{file} is a folder: give a checkpoint (.pth) in it, or bottom-up features (.tsv, .zip)"
        )


def _has_features(file: Path) -> bool:
    """Whether the name is that of a TSV file, such as `train.tsv.0`, or of a zip archive."""
    _check_no_folder(file)
    suffixes = [suffix.lower() for suffix in file.suffixes]
    return ".tsv" in suffixes or suffixes[-1:] == [".zip"]


def _main_of_features(options: argparse.Namespace) -> int:
    start_tensorflow()
    from tfsparsecap.captioning.data import coco
    from tfsparsecap.captioning.data.bottom_up import convert_features

    image_ids: list[str] = []
    if options.data is not None:
        with error_prefix("--data takes captions in one of MS-COCO's formats"):
            image_ids = [record.image_id for record in coco.load(options.data, images="ignore").records]
    with only_json_on_stdout(options.json):
        made = convert_features(options.files, options.output, image_ids)
        regions = f"{made['fewest_regions']} to {made['most_regions']}"
        rows = [
            ("images", _spaced(made["images"])),
            ("regions", f"{regions} of {made['feature_size']} numbers"),
            ("folders", ", ".join(made["folders"])),
        ]
        if made["left_out"]:
            rows.append(("left out", f"{made['left_out']} other files"))
        if not options.json:
            print_table(str(options.output), rows)
    if options.json:
        print(json.dumps({"features": str(options.output), **made}))
    return 0


def convert(
    checkpoint: Path,
    output: Path,
    config: Path | None = None,
    tokenizer: Path | None = None,
    data: str | None = None,
    features: str | None = None,
) -> dict[str, Any]:
    """Converts a published checkpoint to a run folder.

    Args:
        checkpoint: the `.pth` file.
        output: the new folder, `runs/NAME`.
        config: the checkpoint's `config.json`; None looks next to it.
        tokenizer: its SentencePiece model; None looks next to it.
        data, features: become `data.folder` and `data.features` of the run.

    Returns:
        `captioner`, `parameters`, `weights`, `nonzero_weights`, `sparsity`, `tokens`, `max_length` and `run`.

    Raises:
        InputError: see `main`.

    Examples:
        >>> convert(Path("model_best_pruned_sparse.pth"), Path("runs/updown"))["sparsity"]  # doctest: +SKIP
        0.975
    """
    # The cheap checks come first.
    _check_new(output)
    _check_no_folder(checkpoint)
    if not checkpoint.exists():
        raise InputError(f"there is no checkpoint {checkpoint}: check the path")
    if checkpoint.suffix.lower() not in CHECKPOINTS:
        raise InputError(
            f"{checkpoint} is neither a checkpoint ({', '.join(CHECKPOINTS)}) nor bottom-up features: give a"
            " .pth file, or .tsv or .zip files"
        )
    for option, folder in (("--data", data), ("--features", features)):
        if folder is not None and not Path(folder).expanduser().is_dir():
            raise InputError(f"there is no folder {folder}: give {option} an existing one, or leave it out")
    config = config or checkpoint.parent / "config.json"
    published = _read_config(config)
    tokenizer = tokenizer or _tokenizer_beside(checkpoint)
    from tfsparsecap.core.weight_files.torch_archive import read_checkpoint

    arrays = read_checkpoint(checkpoint)
    _check_sizes(published, arrays, checkpoint)
    start_tensorflow()
    from tfsparsecap.captioning.runs.run_folder import RunFolder
    from tfsparsecap.model_summary.nonzeros import weight_counts
    from tfsparsecap.papers.published import load_published, published_captioner

    words = _read_tokenizer(published, tokenizer)
    try:
        captioner = published_captioner(published)
    except InputError as error:
        raise InputError(
            f"{config}: {error}; if it belongs to another checkpoint, give the right one with --config"
        ) from error
    for name in ("start_id", "end_id", "pad_id"):
        if getattr(words, name) != getattr(captioner, name):
            raise InputError(
                f"{name} is {getattr(captioner, name)} in the checkpoint's configuration and"
                f" {getattr(words, name)} in {tokenizer}: give the checkpoint's own tokenizer"
            )
    if len(words) != captioner.vocabulary_size:
        raise InputError(
            f"the captioner has {captioner.vocabulary_size} tokens and {tokenizer} has {len(words)}: give the"
            " checkpoint's own tokenizer"
        )
    load_published(captioner, arrays)
    settings = _settings(captioner, published, output.name, data, features)
    run = RunFolder(output)
    with run.locked():
        _check_new(output)  # again: another process may have been faster
        run.create(settings, words, networks={run.model: captioner})
    return {
        "run": str(output),
        "captioner": type(captioner).__name__,
        "parameters": captioner.count_params(),
        **weight_counts(captioner),
        "tokens": len(words),
        "max_length": settings.data.max_length,
    }


def _check_new(output: Path) -> None:
    # A killed conversion may have left a lock and temporary files.
    if output.exists() and not (
        output.is_dir() and all(path.name.startswith(".") for path in output.iterdir())
    ):
        raise InputError(f"{output} exists: give --output a new folder")


def _spaced(number: int) -> str:
    return f"{number:,}".replace(",", " ")


def _read_config(path: Path) -> dict[str, Any]:
    content = read_json(path, "give the config.json of the checkpoint with --config")
    if not isinstance(content, dict):
        raise InputError(f"{path} contains no settings: give the config.json of the checkpoint")
    return content


def _tokenizer_beside(checkpoint: Path) -> Path:
    paths = [path for pattern in TOKENIZERS for path in sorted(checkpoint.parent.glob(pattern))]
    if len(paths) != 1:
        several = f"several ({', '.join(path.name for path in paths)})" if paths else "none"
        raise InputError(
            f"a checkpoint needs its SentencePiece model, but next to {checkpoint} there is {several}:"
            " give it with --tokenizer"
        )
    return paths[0]


def _read_tokenizer(published: Mapping[str, Any], path: Path):
    from tfsparsecap.captioning.data.radix import RadixTokenizer
    from tfsparsecap.captioning.data.sentencepiece import SentencePieceTokenizer

    pieces = SentencePieceTokenizer.load(path)
    if published.get("tokenizer") != "radix":
        return pieces
    base = published.get("radix_base")
    if not isinstance(base, int) or isinstance(base, bool):
        raise InputError(
            f"radix_base is {base!r} in the checkpoint's configuration: it must be a whole number"
        )
    return RadixTokenizer(pieces, base)


def _check_sizes(published: Mapping[str, Any], arrays: Mapping[str, Any], checkpoint: Path) -> None:
    """Rejects sizes larger than the checkpoint's tensors before memory is allocated for them."""
    largest = max((size for array in arrays.values() for size in array.shape), default=0)
    for name in _SIZES:
        size = published.get(name, 0)
        if isinstance(size, int) and size > largest:
            raise InputError(
                f"{name} is {size} in the configuration, but no tensor in {checkpoint} is that large: give"
                " the config.json of this checkpoint"
            )
    for name in ("num_layers", "logit_layers"):
        layers = published.get(name, 0)
        if not isinstance(layers, int) or layers <= len(arrays):
            continue
        raise InputError(
            f"{name} is {layers} in the configuration, and {checkpoint} has {len(arrays)} tensors: give"
            " the config.json of this checkpoint"
        )
    length = published.get("max_seq_length", _DEFAULT_LENGTH)
    if not isinstance(length, int) or not 2 <= length <= _LONGEST:
        raise InputError(
            f"max_seq_length is {length!r} in the configuration: it must be a whole number from 2 to"
            f" {_LONGEST}"
        )


def _settings(captioner, published: Mapping[str, Any], name: str, data: str | None, features: str | None):
    """Returns the settings of the new run."""
    from tfsparsecap.captioning.settings.config_files import checked_config
    from tfsparsecap.captioning.settings.schema import MODELS

    (kind,) = [kind for kind, model in MODELS.items() if model.captioner == type(captioner).__name__]
    sizes = captioner.get_config()
    model = {key: sizes[key] for key in MODELS[kind].model_fields if key in sizes}
    radix = published.get("radix_base") if published.get("tokenizer") == "radix" else None
    beam = published.get("beam_size_test", 1)
    beam = beam if isinstance(beam, int) and 1 <= beam <= 100 else 1
    content = {
        "name": name,
        "model": {**model, "kind": kind, "encoder": None},
        "data": {
            "kind": "coco",
            "folder": data,
            "features": features,
            "radix_base": radix,
            "max_length": published.get("max_seq_length", _DEFAULT_LENGTH),
        },
        "decoding": {"beam": beam, "plain": True},  # the captions of the original
        "pruning": None,
    }
    return checked_config(content)


if __name__ == "__main__":
    run(main)
