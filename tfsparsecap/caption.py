"""python -m tfsparsecap.caption: captions images with a captioner of the package, a run or a file.

The captioner is `good` or `small`, which come with the package, the folder of a trained run, or a .tflite
file. Without one, `good` captions the images.

Images (JPEG, PNG, WebP, …) can have any size. An image that cannot be read is reported, and the others
are captioned.

examples:
  python -m tfsparsecap.caption photo.jpg
      with `good`
  python -m tfsparsecap.caption small photos/
      all images in a folder with `small`, which is faster
  python -m tfsparsecap.caption model.tflite photo.jpg
      an exported file, on the runtime of phones
  python -m tfsparsecap.caption runs/quickstart photos/ --beam 3
      a trained run, three captions for each image in a folder
  python -m tfsparsecap.caption runs/quickstart photo.jpg --sample 5 --top-p 0.9
      five sampled captions
  python -m tfsparsecap.caption runs/updown --features FOLDER 391895 184613
      images given by their region features
  python -m tfsparsecap.caption photo.jpg --json
      machine-readable output
"""

import argparse
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tfsparsecap.captioning.captioners import NAMES, captioner_path, is_address
from tfsparsecap.command import (
    DONE,
    WRONG_INPUT,
    add_search_options,
    add_trust_option,
    fail,
    only_json_on_stdout,
    parser,
    print_json,
    run,
    search_options,
    start_tensorflow,
)
from tfsparsecap.errors import InputError

if TYPE_CHECKING:
    from tfsparsecap.captioning.inference import Caption


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the command line."""
    options = parser(__doc__)
    options.add_argument(
        "captioner",
        nargs="?",
        metavar="runs/NAME|FILE.tflite|good|small|hf://USER/NAME",
        help=f"a trained run, an exported file, or a captioner of the package (default: {NAMES[0]})",
    )
    options.add_argument(
        "images", nargs="+", metavar="IMAGE", help="image files and folders of them; with --features, ids"
    )
    options.add_argument(
        "--features",
        metavar="FOLDER",
        help="folder of region features, FOLDER/cocobu_att/ID.npy, for a captioner without an encoder",
    )
    options.add_argument(
        "--beam", type=int, help="beam width, and number of captions (a .tflite file has a fixed beam)"
    )
    add_search_options(options)
    sampling = options.add_argument_group("sampling (trained runs only)")
    sampling.add_argument("--sample", type=int, metavar="N", help="sample N captions")
    sampling.add_argument("--top-k", type=int, metavar="K", help="from the K most likely words")
    sampling.add_argument(
        "--top-p", type=float, metavar="P", help="from the most likely words whose probabilities add up to P"
    )
    sampling.add_argument(
        "--temperature",
        type=float,
        metavar="T",
        help="below 1 makes likely words likelier, above 1 less likely (default: 1)",
    )
    sampling.add_argument("--seed", type=int, metavar="S", help="the same seed gives the same captions")
    add_trust_option(options)
    options.add_argument("--json", action="store_true", help="print a JSON list of captions with scores")
    command_line = options.parse_intermixed_args(argv)
    first = command_line.captioner or command_line.images[0]
    # A name without a suffix that does not exist is more likely a wrong captioner than a wrong image.
    is_captioner = _is_captioner(first) or not (os.path.lexists(first) or os.path.splitext(first)[1])
    if command_line.captioner is None and _is_captioner(first):
        raise InputError(f"there is no image to caption: give image files, or folders of them, after {first}")
    if command_line.captioner is not None and not (is_captioner or command_line.features):
        command_line.images = [first, *command_line.images]
        command_line.captioner = None
    command_line.captioner = command_line.captioner or NAMES[0]
    return command_line


def _is_captioner(argument: str) -> bool:
    """Whether an argument is the folder of a run, a file, or the name of a captioner of the package."""
    if is_address(argument):
        return True
    path = captioner_path(argument)
    return path.suffix == ".tflite" or os.path.lexists(path / "config.yaml")


def main(argv: Sequence[str] | None = None) -> int:
    """Captions the images.

    Raises:
        InputError: the captioner cannot be loaded, or an option is wrong.
    """
    options = arguments(argv)
    from tfsparsecap.captioning.inference import load
    from tfsparsecap.captioning.inference.generate import check_search

    sampling = {name: getattr(options, name) for name in ("temperature", "top_k", "top_p", "seed")}
    check_search(options.beam, options.sample, **sampling)
    changes = search_options(options)
    code = DONE
    results: list[dict[str, Any]] = []
    with only_json_on_stdout(options.json):
        if os.path.isdir(options.captioner):
            start_tensorflow()
        captioner = load(options.captioner, trust=options.trust)
        captioner.change_search(**changes)
        stream = captioner.stream(
            options.images, beam=options.beam, samples=options.sample, features=options.features, **sampling
        )
        many = len(options.images) > 1 or (options.features is None and os.path.isdir(options.images[0]))
        for captions in stream:
            error = captions.error
            if error is None and not captions:
                error = InputError(f"no beam found a caption of {captions.image}: give another image or beam")
            if error is not None:
                fail(str(error))
                code = WRONG_INPUT
                results.append({"image": captions.image, "error": str(error)})
                continue
            results.append(
                {
                    "image": captions.image,
                    "captions": [_as_dict(caption) for caption in captions],
                    "objects": [{"object": name, "probability": share} for name, share in captions.objects],
                }
            )
            if not options.json:
                is_summary = options.beam is None and options.sample is None
                text = captions.summary() if is_summary else str(captions)
                separator = " " if "\n" not in text else "\n"
                print(f"{captions.image}:{separator}{text}" if many else text, flush=True)
    if options.json:
        print_json(results)
    return code


def _as_dict(caption: "Caption") -> dict[str, Any]:
    confidence = {} if caption.confidence is None else {"confidence": caption.confidence}
    return {"caption": caption.text, "score": caption.score, **confidence}


if __name__ == "__main__":
    run(main)
