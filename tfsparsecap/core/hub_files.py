"""Files of the Hugging Face Hub, or of the server in `HF_ENDPOINT`, and a sentence for each problem."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tfsparsecap.core.installation import pip_install
from tfsparsecap.errors import InputError

_LONGEST_REASON = 200


def hub_errors() -> tuple[type[Exception], ...]:
    """What the hub's client and its HTTP library raise; LookupError for a server that is no hub."""
    try:
        from huggingface_hub.errors import HfHubHTTPError
    except ImportError:
        return ()
    return *HfHubHTTPError.__bases__, OSError, ValueError, RuntimeError, LookupError


def endpoint() -> str:
    """The address of the hub, which mirrors and tests replace.

    Raises:
        InputError: HF_ENDPOINT is no such address.
    """
    address = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    if not re.fullmatch(r"https?://(\[[\da-fA-F:]+\]|[\w.-]+)(:\d+)?(/[\w./~-]*)?", address, re.ASCII):
        raise InputError(f"HF_ENDPOINT is {address!r:.100}: set it to an address such as https://hub.example")
    return address.rstrip("/")


def is_name(repository: str) -> bool:
    """Whether it is a name of a repository, `USER/NAME`.

    Examples:
        >>> is_name("USER/scenes"), is_name("scenes")
        (True, False)
    """
    return re.fullmatch(r"[\w.-]+/[\w.-]+", repository, re.ASCII) is not None


@contextmanager
def hub_client(what: str, otherwise: str = "") -> Iterator[Any]:
    """Yields the module `huggingface_hub`, without its messages: two lines for each of five attempts.

    Args:
        what: needs it, for the message.
        otherwise: what to do without it.

    Raises:
        InputError: it is not installed.
    """
    try:
        import huggingface_hub
    except ImportError as error:
        command = pip_install("huggingface") + f", or {otherwise}" * bool(otherwise)
        raise InputError(f"{what} needs huggingface_hub: {command}") from error
    level = huggingface_hub.logging.get_verbosity()
    huggingface_hub.logging.set_verbosity_error()
    try:
        yield huggingface_hub
    finally:
        huggingface_hub.logging.set_verbosity(level)


def download(repository: str, file: str, what: str, otherwise: str = "") -> Path:
    """Path of a file of the hub, in its cache or downloaded now.

    Args:
        repository: such as `timm/tiny_vit_5m_224.dist_in22k`.
        file: its name there.
        what, otherwise: for the message, see `hub_client`.

    Raises:
        InputError: huggingface_hub is not installed.
        hub_errors(): the file is neither in the cache nor reachable.
    """
    address = endpoint()
    with hub_client(what, otherwise) as client:
        return Path(client.hf_hub_download(repository, file, endpoint=address))


def reason_of(error: BaseException) -> str:
    """The first sentence of an error of the client, or of what caused it."""
    error = error.__cause__ or error
    text = " ".join(str(error).split()).partition(". ")[0][:_LONGEST_REASON].rstrip(".")
    return text or type(error).__name__


def problem_of(error: BaseException, repository: str) -> str:
    """What is wrong with a repository, or with the way to it, and what to do."""
    from huggingface_hub import errors

    where = f"{repository} on {endpoint()}"
    if isinstance(error, errors.HFValidationError):
        return f"{repository!r:.100} is not a name such as USER/NAME: correct it"
    if isinstance(error, errors.GatedRepoError):
        return f"{where} asks for consent: give it on the page of the model, and log in with hf auth login"
    if isinstance(error, errors.RepositoryNotFoundError):
        return f"there is no {where}, or it is private: check the name, or log in with hf auth login"
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403):
        return f"{where} is not yours to change: log in with hf auth login, or set HF_TOKEN"
    if status is not None:
        return f"{endpoint()} answers with an error for {repository} ({reason_of(error)}): try again later"
    return (
        f"{endpoint()} does not answer ({reason_of(error)}): connect to the network, or correct HF_ENDPOINT"
        " if it is set"
    )
