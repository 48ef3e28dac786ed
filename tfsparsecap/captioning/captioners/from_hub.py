"""Captioners on the Hugging Face Hub, as `hf://USER/NAME`."""

from pathlib import Path

from tfsparsecap.core.hub_files import download, hub_errors, is_name, problem_of
from tfsparsecap.errors import InputError

#: Start of their addresses, and the file that they have.
SCHEME, FILE = "hf://", "model.tflite"


def downloaded(address: str) -> Path:
    """Path of the `.tflite` file of a captioner on the hub, in the hub's cache or downloaded now.

    Args:
        address: `hf://USER/NAME`.

    Raises:
        InputError: huggingface_hub is not installed, the hub does not answer, or there is no such captioner.

    Examples:
        >>> downloaded("hf://USER/NAME")  # doctest: +SKIP
        PosixPath('…/models--USER--NAME/snapshots/…/model.tflite')
    """
    repository = address.removeprefix(SCHEME)
    if not is_name(repository):
        raise InputError(f"{address:.100} is no address of a captioner: write hf://USER/NAME")
    try:
        return download(repository, FILE, address)
    except InputError:
        raise
    except hub_errors() as error:
        from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

        if isinstance(error, EntryNotFoundError) and not isinstance(error, LocalEntryNotFoundError):
            raise InputError(
                f"{address} has no {FILE}, so that it is no captioner of this package: give one that"
                " python -m tfsparsecap.publish has written"
            ) from error
        raise InputError(f"cannot load {address}: {problem_of(error, repository)}") from error
