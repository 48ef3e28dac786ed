"""python -m tfsparsecap.publish: a run on the Hugging Face Hub, to be loaded with one line.

Writes model.tflite, config.yaml, vocabulary.txt and a model card, README.md, to a repository of the hub,
which is created if it does not exist. Then sc.load("hf://USER/NAME") and python -m tfsparsecap.caption
hf://USER/NAME PHOTO.jpg work everywhere. The hub needs a token: run hf auth login once, or set HF_TOKEN.
The server in HF_ENDPOINT takes the place of the hub.

examples:
  python -m tfsparsecap.publish runs/quickstart USER/scenes --dry-run
      print the model card and publish nothing
  python -m tfsparsecap.publish runs/quickstart USER/scenes --licence apache-2.0
      publish it, under a licence that suits its data
"""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path, PureWindowsPath
from typing import Any

from tfsparsecap.command import parser, run, start_tensorflow
from tfsparsecap.core.files import read_json
from tfsparsecap.core.hub_files import is_name
from tfsparsecap.errors import InputError

#: The files that a repository of this package has.
CARD, MODEL, CONFIG, VOCABULARY = "README.md", "model.tflite", "config.yaml", "vocabulary.txt"
# Settings that are folders and files, in any section.
_PLACES = (
    *("folder", "table", "captions", "features", "cache_folder", "sentencepiece"),
    *("weights", "slimmed", "start_from", "teacher"),
)


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parses the command line."""
    options = parser(__doc__)
    options.add_argument("run", type=Path, metavar="runs/NAME", help="an exported run, with its model.tflite")
    options.add_argument("repository", metavar="USER/NAME", help="where to publish it")
    options.add_argument(
        "--licence",
        default="other",
        metavar="ID",
        help="licence of the files, as the hub names it, such as cc-by-4.0 (default: other)",
    )
    options.add_argument("--private", action="store_true", help="a new repository is visible to you only")
    options.add_argument("--dry-run", action="store_true", help="print the model card and publish nothing")
    return options.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    """Publishes a run.

    Raises:
        InputError: the run has no file, or the hub does not take it; no file is then published.
    """
    options = arguments(argv)
    if not is_name(options.repository):
        raise InputError(f"{options.repository!r:.100} is not a name such as USER/NAME: correct it")
    if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", options.licence):
        raise InputError(f"{options.licence!r:.100} is no licence of the hub: give one such as cc-by-4.0")
    start_tensorflow()
    from tfsparsecap.core.hub_files import endpoint, hub_client, hub_errors, problem_of

    address = endpoint()
    with hub_client("publishing") as client:
        files = published_files(options.run, options.repository, options.licence)
        if options.dry_run:
            print(files[CARD].decode())
            return
        try:
            hub = client.HfApi(endpoint=address)
            hub.create_repo(options.repository, private=options.private or None, exist_ok=True)
            others = {file.rfilename for file in hub.model_info(options.repository).siblings or ()}
            foreign = others - {".gitattributes", CARD}
            if foreign and not {MODEL, CONFIG, VOCABULARY} <= foreign:
                raise InputError(
                    f"{options.repository} on {address} holds something else ({min(foreign)}): publish under"
                    " another name"
                )
            hub.create_commit(
                options.repository,
                [client.CommitOperationAdd(name, content) for name, content in files.items()],
                commit_message=f"Captioner {options.run.name}",
            )
        except InputError:
            raise
        except hub_errors() as error:
            raise InputError(
                f"cannot publish {options.run}: {problem_of(error, options.repository)}"
            ) from error
    print(f'published: {address}/{options.repository}; load it with sc.load("hf://{options.repository}")')


def published_files(folder: Path, repository: str, licence: str = "other") -> dict[str, bytes]:
    """The files to publish: name -> content. None of them has to be unpickled.

    Args:
        folder: of an exported run.
        repository: `USER/NAME`.
        licence: an identifier of the hub.

    Raises:
        InputError: it is no run, or was not exported.
    """
    from tfsparsecap.captioning.inference.bundle import check_trust, read_bundle
    from tfsparsecap.captioning.inference.model_card import model_card
    from tfsparsecap.captioning.runs.run_folder import RunFolder
    from tfsparsecap.captioning.settings.config_files import save_config

    run_folder, path = RunFolder(folder), folder / MODEL
    config = run_folder.load_config()
    if not path.is_file():
        raise InputError(f"{folder} has no {MODEL}: export it with tfsparsecap-export --tflite {folder}")
    description, tokens = read_bundle(path)
    check_trust(path, trust=False)
    if description.get("run") != config.name:
        raise InputError(f"{path} is of another run, {description.get('run')!r:.100}: export {folder} again")
    data = str(description.get("trained_on"))
    if run_folder.data.is_file():
        data = read_json(run_folder.data, "delete it").get("data", data)
    plain = _without_places(config.model_dump(mode="json"))
    content = path.read_bytes()
    return {
        CARD: model_card(repository, description, config, data, len(content), licence).encode(),
        MODEL: content,
        CONFIG: save_config(type(config).model_validate(plain)).encode(),
        VOCABULARY: "".join(f"{token}\n" for token in tokens).encode(),
    }


def _without_places(value: Any, is_place: bool = False) -> Any:
    """Settings in which folders and files of this machine keep their names only."""
    if isinstance(value, dict):
        return {key: _without_places(entry, key in _PLACES) for key, entry in value.items()}
    if isinstance(value, list):
        return [_without_places(entry, is_place) for entry in value]
    if isinstance(value, str) and (is_place or re.match(r"[/~]|\.{1,2}/|file:", value)):
        return PureWindowsPath(value).name or "."  # takes the paths of other systems, too
    return value


if __name__ == "__main__":
    run(main)
