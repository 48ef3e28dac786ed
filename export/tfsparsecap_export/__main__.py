"""The command line `tfsparsecap-export`: a trained run in, a sparse .tflite file out."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from tfsparsecap.command import only_json_on_stdout, parser, run, start_tensorflow
from tfsparsecap.errors import InputError
from tfsparsecap_export import FORMATS

_DESCRIPTION = """\
Writes a trained captioner as one self-contained, sparse TensorFlow Lite file.

The file takes a picture (uint8, S x S, RGB) and gives token ids and scores of the best captions:
normalisation, encoder and beam search are in its graph, vocabulary and description ride along as a zip
archive (try unzip -l FILE). Before the file appears it is run against the Keras model; if it does not say
the same, nothing is written. What int8 costs in CIDEr is measured on validation pictures; layers whose
rounding costs too much stay float.

formats:
  auto     a layer pruned in (16, 1) blocks becomes int8 1x16 blocks, an unstructured one compressed
           rows where that pays, the encoder int8, the rest float16; the printed table says why, layer by
           layer
  int8     int8 weights everywhere: 1x16 blocks where that is faster, else dense; encoder int8
  fast     float weights only: compressed rows or 1x4 blocks where that is faster, else float16
  compact  the smallest float file: float16, zeros left out; expanded when loaded, dense speed
  dense, dense-int8
           float32, or int8 weights, nothing left out: for comparison
"""

_EXAMPLES = [
    ("tfsparsecap-export --tflite runs/quickstart", "writes runs/quickstart/model.tflite"),
    ("tfsparsecap-export --tflite runs/quickstart --format dense --output dense.tflite", "to compare with"),
    (
        "python -m tfsparsecap_export.benchmark dense.tflite runs/quickstart/model.tflite",
        "milliseconds and megabytes of both",
    ),
]


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    options = parser("tfsparsecap-export", _DESCRIPTION, _EXAMPLES)
    options.add_argument(
        "--tflite",
        metavar="RUN",
        type=Path,
        required=True,
        help="run folder of a training (runs/NAME), or a .keras file with any model",
    )
    options.add_argument(
        "--format",
        default="auto",
        metavar="FORMAT",
        help="auto, int8, fast, compact, dense or dense-int8 (default: auto)",
    )
    options.add_argument(
        "--beam",
        type=int,
        default=3,
        metavar="N",
        help="captions that a captioner's search keeps, and gives (default: 3)",
    )
    options.add_argument(
        "--max-length",
        type=int,
        metavar="T",
        help="words of a caption at most, its end counted as one (default: as in training, else 20)",
    )
    options.add_argument(
        "--regions",
        type=int,
        metavar="N",
        help="for a captioner without an encoder: regions an image has at most, of more the first ones count"
        " (default: as in training)",
    )
    options.add_argument(
        "--batch",
        default="1",
        metavar="N",
        help="for a model that is no captioner: examples that the file takes at a time, or any for any number"
        " (default: 1)",
    )
    options.add_argument(
        "--output",
        type=Path,
        metavar="FILE.tflite",
        help="default: model.tflite in the run folder, or beside the file",
    )
    options.add_argument(
        "--tolerance",
        type=float,
        metavar="SHARE",
        help="share of the check's captions that may differ from the Keras model's"
        " (default: 0 if all weights stay float, 1 with int8 weights)",
    )
    options.add_argument(
        "--samples", type=int, default=16, metavar="N", help="inputs to check with (default: 16)"
    )
    options.add_argument(
        "--validation",
        type=int,
        default=400,
        metavar="N",
        help="validation pictures to measure the CIDEr on that int8 costs; 0 measures none and leaves the"
        " encoder float (default: 400)",
    )
    options.add_argument(
        "--keep-float",
        action="append",
        default=[],
        metavar="LAYER",
        help="a layer to leave float, such as output, or encoder; can be given several times (layers whose"
        " rounding costs more than 1 %% of the CIDEr are found without)",
    )
    options.add_argument(
        "--costs",
        metavar="FILE",
        help="what kernels cost, as python -m tfsparsecap_export.benchmark --calibrate measured it; shipped"
        " for the package's own (default: this machine's where it was calibrated)",
    )
    options.add_argument("--json", action="store_true", help="print the report as JSON instead of a table")
    return options.parse_args(argv)


def export(argv: Sequence[str] | None = None) -> None:
    """Runs the command with `argv`, the arguments of the process by default.

    Raises:
        InputError: something that was given cannot be used; nothing was written.
    """
    options = _arguments(argv)
    if options.format not in FORMATS:
        raise InputError(f'there is no export format "{options.format}": choose one of {", ".join(FORMATS)}')
    for name in ("beam", "max_length", "samples", "regions"):
        given = getattr(options, name)
        if given is not None and given < 1:
            raise InputError(f"--{name.replace('_', '-')} is {given}: give at least 1")
    if options.batch != "any" and not (options.batch.isdecimal() and int(options.batch)):
        raise InputError(f"--batch is {options.batch}: give at least 1, or any for any number")
    if options.tolerance is not None and not 0 <= options.tolerance <= 1:
        raise InputError(f"--tolerance is {options.tolerance}: give a share from 0 to 1")
    if options.validation < 0:
        raise InputError(f"--validation is {options.validation}: give at least 1, or 0 to measure nothing")
    output = options.output
    if output is None:
        alone = options.tflite.suffix == ".keras"
        output = options.tflite.with_suffix(".tflite") if alone else options.tflite / "model.tflite"
    if output.suffix != ".tflite":
        raise InputError(f"--output is {output}: give a name that ends in .tflite")
    start_tensorflow()
    with only_json_on_stdout(options.json):
        report = _export(options, output)
    if options.json:
        json.dump(report.as_dict(), sys.stdout, indent=1, ensure_ascii=False)
        print()
        return
    from rich.console import Console

    console = Console()
    if not console.is_terminal:  # a log file has no width to keep to
        console = Console(width=140)
    console.print(report.table())
    for sentence in report.sentences():
        console.print(sentence, highlight=False)


def _export(options: argparse.Namespace, output: Path):
    from rich.console import Console

    from tfsparsecap.models.captioner import Captioner
    from tfsparsecap_export.encode import costs
    from tfsparsecap_export.exporter import caption_inputs, export_model
    from tfsparsecap_export.runs import load_run, validation_of
    from tfsparsecap_export.samples import synthetic_samples

    kernel_costs, _ = costs.choose(options.costs)
    with Console(stderr=True).status("loading the model") as status:
        loaded = load_run(options.tflite)
        if not isinstance(loaded.model, Captioner):
            status.update("exporting and checking")
            return export_model(
                loaded.model,
                output,
                options.format,
                batch=None if options.batch == "any" else int(options.batch),
                tolerance=options.tolerance,
                keep_float=options.keep_float,
                costs=kernel_costs,
            )
        if options.batch != "1":
            raise InputError(
                f"--batch is {options.batch}: a captioner's file takes one picture; leave it out"
            )
        if options.regions is not None and loaded.model.encoder is not None:
            raise InputError(
                f"--regions is for a captioner without an encoder: {options.tflite} takes images"
            )
        shapes = None
        regions = options.regions or (loaded.config.data.max_regions if loaded.config else None)
        if loaded.model.encoder is None and regions:
            shapes = {"features": (regions, loaded.model.feature_size)}
            if "boxes" in loaded.model.input_names:
                shapes["boxes"] = (regions, 4)
        inputs = caption_inputs(loaded.model, shapes)
        status.update("reading validation pictures")
        validation, source = validation_of(loaded, inputs, max(options.validation, options.samples))
        samples = synthetic_samples(inputs, options.samples)
        if validation is not None:
            samples = validation.samples[:: len(validation.samples) // options.samples or 1]
        status.update("converting")
        return export_model(
            loaded.model,
            output,
            options.format,
            beam=options.beam,
            max_length=_length(options, loaded),
            inputs=shapes,
            tokenizer=loaded.tokenizer,
            description=loaded.description,
            samples=samples[: options.samples],
            sample_source=source,
            tolerance=options.tolerance,
            validation=validation if options.validation else None,
            keep_float=options.keep_float,
            costs=kernel_costs,
            progress=status.update,
        )


def _length(options: argparse.Namespace, loaded) -> int:
    """Tokens of a caption at most, the end among them."""
    if options.max_length is None:
        trained = loaded.config.data.max_length if loaded.config else loaded.model.max_length
        return trained or 20
    digits = 1 if loaded.tokenizer is None else loaded.tokenizer.digits
    return (options.max_length - 1) * digits + 1


def main() -> None:
    """What `tfsparsecap-export` starts."""
    run(export)


if __name__ == "__main__":
    main()
