"""The captioners that come with the package: `.tflite` files, for non-commercial use, as their data are.

docs/models.md has their scores and weaknesses. Others are downloaded from the Hugging Face Hub.
"""

import os
from pathlib import Path

from tfsparsecap.core.hub_files import download, hub_errors, is_name, problem_of
from tfsparsecap.errors import InputError

#: Their names; the first is the one that is used unless another one is chosen.
NAMES = ("good", "small")
# Start of addresses of captioners on the hub, and the file that they have.
_SCHEME, _FILE = "hf://", "model.tflite"


def is_address(captioner: str | os.PathLike) -> bool:
    """Whether a captioner is one on the Hugging Face Hub, `hf://USER/NAME`."""
    return str(captioner).startswith(_SCHEME) and not os.path.lexists(captioner)


def captioner_path(captioner: str | os.PathLike) -> Path:
    """The path of a captioner, which may be one of `NAMES` or an address on the Hugging Face Hub.

    Args:
        captioner: a path, a name, or `hf://USER/NAME`. A file or folder of that name in the working directory
            comes first.

    Raises:
        InputError: the captioner cannot be downloaded.

    Examples:
        >>> captioner_path("small").name, str(captioner_path("runs/quickstart"))
        ('small.tflite', 'runs/quickstart')
    """
    path = Path(captioner)
    if is_address(captioner):
        return _downloaded(str(captioner))
    if str(captioner) in NAMES and not os.path.lexists(path):
        return Path(__file__).with_name(f"{captioner}.tflite")
    return path


def _downloaded(address: str) -> Path:
    """Path of the `.tflite` file of a captioner on the hub, in the hub's cache or downloaded now.

    Args:
        address: `hf://USER/NAME`.

    Raises:
        InputError: huggingface_hub is not installed, the hub does not answer, or there is no such captioner.
    """
    repository = address.removeprefix(_SCHEME)
    if not is_name(repository):
        raise InputError(f"{address:.100} is no address of a captioner: write hf://USER/NAME")
    try:
        return download(repository, _FILE, address)
    except InputError:
        raise
    except hub_errors() as error:
        from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

        if isinstance(error, EntryNotFoundError) and not isinstance(error, LocalEntryNotFoundError):
            raise InputError(
                f"{address} has no {_FILE}, so that it is no captioner of this package: give one that"
                " python -m tfsparsecap.publish has written"
            ) from error
        raise InputError(f"cannot load {address}: {problem_of(error, repository)}") from error
