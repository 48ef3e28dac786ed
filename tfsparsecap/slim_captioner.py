"""python -m tfsparsecap.slim_captioner: a smaller captioner from a finished run, as in RTIC.

Structured pruning removes channels of the image encoder, heads and feed-forward units of the transformer
encoder, and layers of the decoder; the result is a new run folder. Shares are what stays. The new captioner
needs training; the command is printed.

examples:
  python -m tfsparsecap.slim_captioner runs/rtic_small --encoder-width 0.6 --decoder-layers 2 \\
      --output runs/rtic_small_slim
      60 % of the heads and units of each encoder layer, two decoder layers
  python -m tfsparsecap.slim_captioner runs/rtic_unpruned --encoder-channels 0.5 --encoder-width 0.6 \\
      --decoder-layers 3 --output runs/rtic_slim
      also half of the channels of the image encoder
  python -m tfsparsecap.slim_captioner runs/NAME --encoder-channels 0.82 --encoder-budget parameters \\
      --output runs/smaller
      82 % of the image encoder's weights, for any captioner
"""

import argparse
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tfsparsecap.command import only_json_on_stdout, parser, print_table, run, start_tensorflow
from tfsparsecap.errors import InputError, check_number, check_whole, error_prefix

BUDGETS = ("channels", "parameters", "flops", "latency")
CRITERIA = ("taylor", "rtic", "l1", "l2")


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the command line."""
    options = parser(__doc__)
    options.add_argument("run", type=Path, metavar="RUN", help="folder of a finished run")
    options.add_argument("--output", type=Path, required=True, metavar="runs/NAME", help="the new run folder")
    options.add_argument(
        "--encoder-channels", type=float, metavar="SHARE", help="channels of the image encoder that stay"
    )
    options.add_argument(
        "--encoder-budget",
        choices=BUDGETS,
        default=BUDGETS[0],
        help="what --encoder-channels is a share of (default: channels)",
    )
    options.add_argument(
        "--encoder-criterion",
        choices=CRITERIA,
        help="how channels are chosen (default: taylor, by the change of the feature map of training images;"
        " rtic: by the paper's equation 3, from gammas and the weights of the next layer)",
    )
    options.add_argument(
        "--encoder-width",
        type=float,
        metavar="SHARE",
        help="heads and feed-forward units of each transformer encoder layer that stay",
    )
    options.add_argument("--decoder-layers", type=int, metavar="N", help="decoder layers that stay")
    options.add_argument("--json", action="store_true", help="print the result as JSON")
    return options.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Raises:
        InputError: the run is not finished or has no such part, a share is out of range, or the output folder
            exists. Nothing is written then.
    """
    options = arguments(argv)
    with only_json_on_stdout(options.json):
        made = slim_run(
            options.run,
            options.output,
            encoder_channels=options.encoder_channels,
            encoder_budget=options.encoder_budget,
            encoder_criterion=options.encoder_criterion,
            encoder_width=options.encoder_width,
            decoder_layers=options.decoder_layers,
        )
        if not options.json:
            rows = [
                (name, f"{count:,} parameters → {made['after'][name]:,} ({made['after'][name] / count:.1%})")
                for name, count in made["before"].items()
            ]
            print_table(made["run"], rows)
            for note in made["notes"]:
                print(f"note: {note}")
            print(f"fine-tune it: {made['train']}")
    if options.json:
        print(json.dumps(made))
    return 0


def slim_run(
    source: Path,
    output: Path,
    *,
    encoder_channels: float | None = None,
    encoder_budget: str = "channels",
    encoder_criterion: str | None = None,
    encoder_width: float | None = None,
    decoder_layers: int | None = None,
) -> dict[str, Any]:
    """Writes the run folder of a smaller captioner.

    Its `config.yaml` has the new sizes and is ready for fine-tuning under another name: it starts from the
    new folder, and the old run is its teacher (of a transformer with `training.teacher_loss=proposed`).

    Args:
        source: folder of a finished run.
        output: the new folder, `runs/NAME`.
        encoder_channels: share of the image encoder's channels that stays (`sc.slim`). Those that are removed
            are predicted from those that stay, on 64 training images. If these cannot be read, nothing takes
            over what they contribute, and a note says so.
        encoder_budget: `budget` of `sc.slim`.
        encoder_criterion: `criterion` of `sc.slim`: `taylor` (the default), `rtic`, `l1` or `l2`. If no
            training image can be read, the default is `l2`.
        encoder_width: see `slim_transformer`.
        decoder_layers: see `slim_transformer`.

    Returns:
        `run`; `before` and `after` with the numbers of parameters of `image encoder`, `transformer encoder`,
        `decoder` (the rest) and `all`; `train`, a command that fine-tunes it; `notes`.

    Raises:
        InputError: see `main`.

    Examples:
        >>> slim_run(Path("runs/a"), Path("runs/b"), encoder_width=0.6)["run"]  # doctest: +SKIP
        'runs/b'
    """
    for name, share in (("--encoder-channels", encoder_channels), ("--encoder-width", encoder_width)):
        if share is not None:
            check_number(name, share, above=0, below=1)
    if decoder_layers is not None:
        check_whole("--decoder-layers", decoder_layers, at_least=1)
    if encoder_channels is None and encoder_width is None and decoder_layers is None:
        raise InputError("nothing to remove: give --encoder-channels, --encoder-width or --decoder-layers")
    if encoder_criterion is not None and encoder_channels is None:
        raise InputError("--encoder-criterion does nothing without --encoder-channels: give both, or neither")
    if output.exists():
        raise InputError(f"{output} exists: give --output a new folder")
    start_tensorflow()
    from tfsparsecap.captioning.inference.finished_run import FinishedRun
    from tfsparsecap.captioning.models.slim_transformer import slim_transformer
    from tfsparsecap.captioning.models.transformer_captioner import TransformerCaptioner
    from tfsparsecap.captioning.runs.run_folder import RunFolder
    from tfsparsecap.captioning.settings.config_files import checked_config

    finished = FinishedRun.load(source)
    captioner, content = finished.captioner, finished.config.model_dump(mode="json")
    before, notes = _sizes(captioner), []
    if encoder_width is not None or decoder_layers is not None:
        if not isinstance(captioner, TransformerCaptioner):
            raise InputError(
                f"the run in {source} has model.kind={finished.config.model.kind}, which has no transformer"
                " layers: leave out --encoder-width and --decoder-layers"
            )
        if decoder_layers is not None and decoder_layers > captioner.depth:
            raise InputError(
                f"--decoder-layers is {decoder_layers}, but the decoder in {source} has {captioner.depth}"
                " layers: give fewer"
            )
        if decoder_layers == captioner.depth and encoder_width is None and encoder_channels is None:
            raise InputError(
                f"nothing to remove: --decoder-layers is {decoder_layers}, and the decoder in {source} has as"
                " many: give fewer"
            )
        captioner, settings = slim_transformer(captioner, encoder_width or 1.0, decoder_layers)
        content["model"] = {**content["model"], **settings}
    if encoder_channels is not None:
        how = encoder_budget, encoder_criterion
        notes = _slim_encoder(captioner.encoder, encoder_channels, *how, source, finished.config)
        content["model"]["encoder"]["slimmed"] = str(RunFolder(output).encoder)
    content["name"] = output.name
    loss = "proposed" if isinstance(captioner, TransformerCaptioner) else "words"
    content["training"] |= {"start_from": str(output), "teacher": [str(source)], "teacher_loss": loss}
    content["training"]["slim"] = None
    config, folder = checked_config(content), RunFolder(output)
    networks = {folder.model: captioner}
    if encoder_channels is not None:
        networks[folder.encoder] = captioner.encoder.backbone
    with folder.locked():
        folder.create(config, finished.tokenizer, networks=networks)
    train = ["python", "-m", "tfsparsecap.train", "--config", str(folder.config_file)]
    if output.parent.resolve() != Path("runs").resolve():
        train += ["--runs", str(output.parent)]
    return {
        "run": str(output),
        "before": before,
        "after": _sizes(captioner),
        "train": shlex.join([*train, f"name={output.name}_tuned"]),
        "notes": notes,
    }


def _sizes(captioner: Any) -> dict[str, int]:
    image = captioner.encoder.count_params() if captioner.encoder is not None else 0
    layers = sum(layer.count_params() for layer in getattr(captioner, "encoder_layers", ()))
    total = captioner.count_params()
    sizes = {"image encoder": image, "transformer encoder": layers, "decoder": total - image - layers}
    return {name: count for name, count in {**sizes, "all": total}.items() if count}


def _slim_encoder(
    encoder: Any, share: float, budget: str, criterion: str | None, source: Path, config: Any
) -> list[str]:
    from tfsparsecap.captioning.settings.build import load_data
    from tfsparsecap.captioning.training.run_pruning import sample_batches
    from tfsparsecap.slimming.channel_choice import RatioError
    from tfsparsecap.slimming.plan import slim

    if encoder is None:
        raise InputError(f"the run in {source} has no image encoder: leave out --encoder-channels")
    notes, samples = [], None
    try:
        samples = sample_batches(encoder, load_data(config).split("train"))
    except InputError as error:
        if criterion == "taylor":
            raise
        chosen = criterion or "l2"
        notes.append(f"channels are chosen by {chosen} and not predicted from training images: {error}")
    with error_prefix("--encoder-channels"):
        try:
            small = slim(encoder.backbone, 1 - share, budget=budget, criterion=criterion, samples=samples)
        except RatioError as error:
            raise error.of_setting("the share", share, stays=True) from error
    encoder.replace(small)
    return notes


if __name__ == "__main__":
    run(main)
