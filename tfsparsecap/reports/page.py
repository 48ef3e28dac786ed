"""The page of a report: one HTML file with everything in it, that needs no network and no script."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

from tfsparsecap.reports.runs import Table

if TYPE_CHECKING:
    from tfsparsecap.reports.figures import FigureFile
    from tfsparsecap.reports.images import GalleryPicture, LookedAt

_TEMPLATE = "report.html"
_SECTIONS = (
    ("trained", "What was trained"),
    ("scores", "Scores"),
    ("gallery", "Test pictures"),
    ("progression", "Training progression"),
    ("layers", "Layer-wise sparsity"),
    ("density", "Density of the remaining weights"),
    ("files", "Exported files"),
    ("attention", "Where it looked at each word"),
)


@dataclass(frozen=True)
class Page:
    """All that stands on a page, in its order.

    Attributes:
        title, summary: what it is about.
        notes: sentences about what is missing or does not compare.
        settings, scores: of the runs.
        gallery: test pictures.
        progression, layers, density: figures; None where there is nothing to draw.
        not_logged: what the progression would show.
        files: exported ones; None where there are none.
        timed: whether they were timed.
        attention: where captioners looked; None leaves the section out.
    """

    title: str
    summary: str
    notes: Sequence[str]
    settings: Table
    scores: Table
    gallery: Sequence["GalleryPicture"]
    progression: "FigureFile | None"
    not_logged: Sequence[str]
    layers: "FigureFile | None"
    density: "FigureFile | None"
    files: Table | None
    timed: bool
    attention: "Sequence[LookedAt] | None"

    @property
    def sections(self) -> list[tuple[str, str]]:
        """Ids and headings of the sections that the page has."""
        return [entry for entry in _SECTIONS if entry[0] != "attention" or self.attention is not None]


def render(page: Page) -> str:
    """The page as HTML. All text on it is escaped: what captions hold is shown, never run.

    Args:
        page: texts need no escaping.
    """
    # Half a second that a command's --help does not need.
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True)
    environment.filters["png"] = lambda content: _data_uri("image/png", content)
    environment.filters["jpeg"] = lambda content: _data_uri("image/jpeg", content)
    source = files("tfsparsecap.training").joinpath(_TEMPLATE).read_text(encoding="utf-8")
    text = environment.from_string(source).render(page=page)
    # Half of a surrogate pair (JSON may spell one) cannot be written.
    return text.encode("utf-8", "replace").decode("utf-8")


def _data_uri(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"
