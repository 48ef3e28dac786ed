"""tfsparsecap-export: a trained captioner as one self-contained, sparse TensorFlow Lite file.

The file takes an image (uint8, S x S, RGB) and returns token ids and scores of the best captions. Its
graph contains preprocessing, encoder and beam search; vocabulary and description are in a zip archive
after the graph (try unzip -l FILE). The file is written only if its outputs agree with the Keras model's.
The loss of CIDEr due to int8 is measured on validation images; layers that lose too much stay float.

formats:
  auto     a layer pruned in (16, 1) blocks becomes int8: 1x16 blocks, or dense if that is faster because it
           multiplies many rows at once; an unstructured one compressed rows if that is worthwhile, the
           encoder int8, everything else float16; the printed table gives the reason for each layer
  int8     int8 weights everywhere: 1x16 blocks where they are faster, else dense; int8 encoder
  fast     float weights only: compressed rows or 1x4 blocks where they are faster, else float16
  compact  the smallest float file: float16 without zeros, expanded when the file is loaded; dense speed
  dense, dense-int8
           float32 or int8 weights including zeros, for comparison

examples:
  tfsparsecap-export --tflite runs/quickstart
      writes runs/quickstart/model.tflite
  tfsparsecap-export --tflite runs/quickstart --format dense --output dense.tflite
      for comparison
  python -m tfsparsecap_export.benchmark dense.tflite runs/quickstart/model.tflite
      latency and size of both files
"""

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfsparsecap.command import (
    add_search_options,
    only_json_on_stdout,
    parser,
    print_json,
    run,
    search_options,
    start_tensorflow,
)
from tfsparsecap.core.files import check_suffix
from tfsparsecap.core.progress import Progress, progress_bar
from tfsparsecap.errors import InputError
from tfsparsecap_export.encode import DEFAULT_TARGET, FORMATS, TARGET_NAMES

if TYPE_CHECKING:
    from tfsparsecap.captioning.models.captioner_base import Captioner
    from tfsparsecap_export.export_report import ExportReport
    from tfsparsecap_export.model_sources import Run


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    options = parser(__doc__)
    add = options.add_argument
    add(
        "--tflite",
        type=Path,
        required=True,
        metavar="RUN",
        help="run folder, or a .keras file with any model",
    )
    add("--format", default="auto", metavar="FORMAT", help=f"{', '.join(FORMATS)} (default: auto)")
    where = "default: model.tflite in the run folder, or next to the .keras file"
    add("--output", type=Path, metavar="FILE.tflite", help=where)
    keep = "a layer that stays float, such as output or encoder; can be repeated"
    add("--keep-float", action="append", default=[], metavar="LAYER", help=keep)
    target = f"processor to choose encodings for: {', '.join(TARGET_NAMES)} (default: {DEFAULT_TARGET})"
    add("--target", default=DEFAULT_TARGET, metavar="TARGET", help=target)
    add("--json", action="store_true", help="print the report as JSON instead of a table")

    others = options.add_argument_group("models that are not captioners")
    batch = "batch size of the file, or any (default: 1)"
    others.add_argument("--batch", default="1", metavar="N", help=batch)
    shape = (
        "shape of an input without the batch, such as 224x224x3, or NAME=20 if there are several; can be"
        " repeated (default: as the model was built)"
    )
    others.add_argument("--shape", action="append", default=[], metavar="SHAPE", help=shape)
    inputs = (
        "an array [N, ...] with inputs, preprocessed as in training, or NAME=FILE.npy if there are several;"
        " can be repeated. With two or more inputs, convolutions become int8 (default: synthetic inputs)"
    )
    others.add_argument("--inputs", action="append", default=[], metavar="FILE.npy", help=inputs)

    captioners = options.add_argument_group("captioners").add_argument
    beam = "number of captions of beam search (default: the run's decoding.beam, but at least 3)"
    captioners("--beam", type=int, metavar="N", help=beam)
    length = "maximum number of words per caption, including the end (default: as in training, else 20)"
    captioners("--max-length", type=int, metavar="T", help=length)
    regions = "maximum number of regions per image, without an encoder (default: as in training)"
    captioners("--regions", type=int, metavar="N", help=regions)
    tolerance = (
        "fraction of the captions that may differ from the Keras model's (default: 0 with float weights,"
        " 1 with int8 weights)"
    )
    captioners("--tolerance", type=float, metavar="FRACTION", help=tolerance)
    samples = "number of inputs for the comparison with the Keras model (default: 16)"
    captioners("--samples", type=int, default=16, metavar="N", help=samples)
    validation = (
        "number of validation images on which to measure the loss of CIDEr due to int8; with 0, nothing is"
        " measured and the encoder stays float (default: 1000)"
    )
    captioners("--validation", type=int, default=1000, metavar="N", help=validation)
    add_search_options(options)
    return options.parse_args(argv)


def _shapes(texts: Sequence[str]) -> Any:
    """The shapes of `--shape`: one without a name, or several by name; None if there are none."""
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, _, sizes = text.rpartition("=")
        if not re.fullmatch(r"[1-9]\d{0,8}(x[1-9]\d{0,8})*", sizes, re.ASCII) or name in shapes:
            raise InputError(f"--shape is {text:.100}: use a shape such as 224x224x3, or NAME=20, once each")
        shapes[name] = tuple(int(size) for size in sizes.split("x"))
    if "" in shapes and len(shapes) > 1:
        raise InputError("--shape without a name is for models with one input: use NAME=SHAPE for each input")
    return shapes.get("", shapes or None)


def export(argv: Sequence[str] | None = None) -> None:
    """Runs the command with `argv`, by default the arguments of the process.

    Raises:
        InputError: an argument or the run cannot be used; nothing was written.
    """
    options = _arguments(argv)
    from tfsparsecap_export.encode.costs import kernel_costs
    from tfsparsecap_export.encode.formats import check_format

    check_format(options.format)
    kernel_costs(options.target)
    search_options(options)
    for name in ("beam", "max_length", "samples", "regions"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise InputError(f"--{name.replace('_', '-')} is {value}: use at least 1")
    if options.batch != "any" and not (options.batch.isdecimal() and int(options.batch)):
        raise InputError(f"--batch is {options.batch}: use at least 1, or any for any batch size")
    if options.tolerance is not None and not 0 <= options.tolerance <= 1:
        raise InputError(f"--tolerance is {options.tolerance}: use a fraction from 0 to 1")
    options.shape = _shapes(options.shape)
    if options.validation < 0:
        raise InputError(f"--validation is {options.validation}: use at least 1, or 0 to measure nothing")
    output = options.output
    if output is None:
        is_file = options.tflite.suffix == ".keras"
        output = options.tflite.with_suffix(".tflite") if is_file else options.tflite / "model.tflite"
    check_suffix(output, ".tflite")
    start_tensorflow()
    with only_json_on_stdout(options.json):
        report = _export(options, output)
    if options.json:
        print_json(report.as_dict(), indent=1)
        return
    print(report)


def _export(options: argparse.Namespace, output: Path) -> "ExportReport":
    from tfsparsecap.captioning.models.captioner_base import Captioner
    from tfsparsecap_export.exporter import export_model
    from tfsparsecap_export.model_sources import load_run
    from tfsparsecap_export.samples import read_samples

    with progress_bar() as progress:
        progress("loading the model", None)
        loaded = load_run(options.tflite)
        if isinstance(loaded.model, Captioner):
            _check_captioner_options(options, loaded.model)
            return _export_captioner(options, output, loaded, progress)
        return export_model(
            loaded.model,
            output,
            options.format,
            batch=None if options.batch == "any" else int(options.batch),
            inputs=options.shape,
            samples=read_samples(options.inputs) if options.inputs else None,
            keep_float=options.keep_float,
            target=options.target,
            progress=progress,
        )


def _check_captioner_options(options: argparse.Namespace, captioner: "Captioner") -> None:
    """Raises InputError for an option that the captioner does not have."""
    for name in ("shape", "inputs"):
        if getattr(options, name):
            raise InputError(f"--{name} is for other models: {options.tflite} is a captioner; omit it")
    if options.batch != "1":
        raise InputError(f"--batch is {options.batch}: the file of a captioner takes one image; omit it")
    if options.regions is not None and captioner.encoder is not None:
        raise InputError(
            f"--regions is for captioners without an encoder: {options.tflite} takes images; omit it"
        )


def _export_captioner(
    options: argparse.Namespace, output: Path, loaded: "Run", progress: Progress
) -> "ExportReport":
    from tfsparsecap.captioning.settings.sections import Decoding
    from tfsparsecap_export.caption_files.export_captioner import CaptionOptions, caption_inputs
    from tfsparsecap_export.exporter import export_model
    from tfsparsecap_export.model_sources import validation_samples
    from tfsparsecap_export.samples import Sample, synthetic_samples

    captioner: Any = loaded.model
    config, tokenizer = loaded.config, loaded.tokenizer
    shapes: dict[str, tuple[int, ...]] | None = None
    regions = options.regions or (config.data.max_regions if config else None)
    if captioner.encoder is None and regions:
        shapes = {"features": (regions, captioner.feature_size)}
        if "boxes" in captioner.input_names:
            shapes["boxes"] = (regions, 4)
    inputs = caption_inputs(captioner, shapes)
    decoding = config.decoding if config else Decoding()
    decoding = decoding.changed(**search_options(options))
    if options.max_length is None:
        max_length = (config.data.max_length if config else captioner.max_length) or 20
    else:  # in words, of which the last one is the end token
        max_length = (options.max_length - 1) * (tokenizer.digits if tokenizer else 1) + 1
    progress("reading validation images", None)
    validation, source, note = validation_samples(loaded, inputs, max(options.validation, options.samples))
    if note:
        print(note, file=sys.stderr)
    samples: Sequence[Sample] = synthetic_samples(inputs, options.samples)
    if validation is not None:
        samples = validation.samples[:: len(validation.samples) // options.samples or 1]
    return export_model(
        captioner,
        output,
        options.format,
        captions=CaptionOptions(
            beam=options.beam or max(3, decoding.beam),
            max_length=max_length,
            tokenizer=tokenizer,
            search=decoding.search_options(config.data.kind if config else None),
            description=loaded.description,
            tolerance=options.tolerance,
        ),
        inputs=shapes,
        samples=samples[: options.samples],
        sample_source=source,
        validation=validation if options.validation else None,
        keep_float=options.keep_float,
        target=options.target,
        progress=progress,
    )


def main() -> None:
    """Entry point of `tfsparsecap-export`."""
    run(export)


if __name__ == "__main__":
    main()
