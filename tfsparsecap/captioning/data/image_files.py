"""Where the image files are that a caption file or a table names."""

import os
import unicodedata
from collections.abc import Iterable
from pathlib import Path


class ImageFiles:
    """Finds image files; lists each folder once, because 123 287 single lookups would be slow.

    Args:
        folder: names of images are relative to it, or to `Images/` or `images/` in it.
        elsewhere: other folders in it, in which images are found without the folders of their names.

    Examples:
        >>> ImageFiles(Path("photos")).find("no/such.jpg") is None
        True
    """

    def __init__(self, folder: Path, elsewhere: Iterable[str] = ()):
        self._folder = str(folder)
        self._names: dict[str, frozenset[str]] = {}
        places = (os.path.join(folder, name) for name in elsewhere)
        self._elsewhere = [place for place in places if self._names_in(place)]

    def find(self, name: str) -> Path | None:
        """The path of an image, or None.

        Paths of Windows are found, too, and accents in one or two code points, as in archives made on a Mac.
        """
        for spelling in _spellings(name):
            parent, base = os.path.split(spelling)
            own = (os.path.join(self._folder, root, parent) for root in ("", "Images", "images"))
            for place in (*own, *self._elsewhere):
                if base in self._names_in(place):
                    return Path(place, base)
        return None

    def _names_in(self, place: str) -> frozenset[str]:
        if place not in self._names:
            try:
                with os.scandir(place) as entries:
                    self._names[place] = frozenset(entry.name for entry in entries if entry.is_file())
            except (OSError, ValueError):  # a caption in the column of images is no path
                self._names[place] = frozenset()
        return self._names[place]


def _spellings(name: str) -> dict[str, None]:
    paths = (name, name.replace("\\", "/"))
    forms = [unicodedata.normalize(form, path) for path in paths for form in ("NFC", "NFD")]
    return dict.fromkeys((*paths, *forms))
