"""python -m tfsparsecap_export.inspect: what .tflite files contain, and what would fail on a phone.

Shows what .tflite files contain, of this package or any other: inputs and outputs, how each layer is
stored, its zeros and its bytes, and what a phone would refuse or compute wrongly.

Nothing in a file is run. A layer is a constant that is multiplied, convolved or looked up; a constant
that several subgraphs share counts once. "csr", "1x4" and "int8 1x16" are sparse weights that are
multiplied directly; (DENSIFY) and (DEQUANTIZE) mean that weights are made dense, or float, before use.

examples:
  python -m tfsparsecap_export.inspect model.tflite
      tables
  python -m tfsparsecap_export.inspect good small
      the captioners that come with the package
  python -m tfsparsecap_export.inspect mine.tflite theirs.tflite
      one after the other
  python -m tfsparsecap_export.inspect model.tflite --json
      JSON, for programs
"""

import json
from collections.abc import Sequence
from pathlib import Path

from tfsparsecap.captioning.captioners import captioner_path
from tfsparsecap.command import DONE, WRONG_INPUT, fail, parser, run
from tfsparsecap.errors import InputError


def main(argv: Sequence[str] | None = None) -> int:
    """Shows the files; one that cannot be read is reported, and the others are still shown."""
    command = parser(__doc__)
    command.add_argument(
        "files", nargs="+", metavar="FILE.tflite", help="files to inspect, good, small or hf://USER/NAME"
    )
    command.add_argument("--json", action="store_true", help="print a JSON list instead of tables")
    options = command.parse_args(argv)
    from tfsparsecap.captioning.inference.description import DESCRIPTION
    from tfsparsecap_export.contents_tables import as_dict, contents_of_file
    from tfsparsecap_export.flatbuffer.contents import read_contents
    from tfsparsecap_export.flatbuffer.stored import decoded_text
    from tfsparsecap_export.tables import console

    code, results = DONE, []
    for path in options.files:
        try:
            path = captioner_path(path)
            contents = read_contents(path)
            description, vocabulary = _bundle(path) if DESCRIPTION in contents.files else (None, [])
        except InputError as error:
            fail(decoded_text(str(error)))
            code = WRONG_INPUT
            results.append({"path": str(path), "error": str(error)})
            continue
        if options.json:
            results.append(as_dict(contents, description, vocabulary))
        else:
            console().print(contents_of_file(contents, description, vocabulary))
    if options.json:
        print(json.dumps(results))
    return code


def _bundle(path: Path) -> tuple[dict, list[str]]:
    """A captioner's description, in which NaN becomes null, as in JSON, and its vocabulary."""
    from tfsparsecap.captioning.inference.bundle import read_bundle
    from tfsparsecap.captioning.inference.description import DESCRIPTION

    description, vocabulary = read_bundle(path)
    try:
        # Wrapped, so that it can be nested again without exceeding the recursion limit.
        text = json.dumps([[[[description]]]])
        return json.loads(text, parse_constant=lambda _: None)[0][0][0][0], vocabulary
    except RecursionError as error:
        raise InputError(f"{DESCRIPTION} in {path} is nested too deeply: export the run again") from error


if __name__ == "__main__":
    run(main)
