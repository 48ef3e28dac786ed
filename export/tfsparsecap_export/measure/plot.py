"""A plot of file size against latency."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfsparsecap.errors import InputError
from tfsparsecap.files import atomic_path

if TYPE_CHECKING:
    from tfsparsecap_export.measure.timing import Measurement

_SUFFIXES = (".png", ".svg", ".pdf")
_MARKERS = "osD^vP*X"
# If the largest value is more than so many times the smallest, the axis is logarithmic.
_LOGARITHMIC_FROM = 5


def check_path(path: Path) -> None:
    """Raises InputError if no plot can be written to `path`."""
    if path.suffix.lower() not in _SUFFIXES:
        raise InputError(f"{path} is not a .png, .svg or .pdf file: give a plot one of these suffixes")
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent} for {path.name}: create it first")


def size_against_latency(results: "list[Measurement]", path: Path) -> None:
    """Plots a point for each file: milliseconds of a run on the x axis, megabytes on the y axis.

    Args:
        results: of `timing.measure`; the first file's marker is hollow.
        path: a .png, .svg or .pdf file.

    Raises:
        InputError: the file cannot be written or has another suffix.

    Examples:
        >>> size_against_latency(measure(paths, samples(paths)), Path("sizes.png"))
    """
    from matplotlib.figure import Figure

    check_path(path)
    # The legend is below the axes: labels beside the points would overlap.
    figure = Figure(figsize=(7, 4 + 0.22 * len(results)), layout="constrained")
    axes = figure.add_subplot()
    for number, (result, name) in enumerate(zip(results, short_names(results), strict=True)):
        label = f"{name}: {result.ms:.3g} ms, {result.bytes / 1e6:.3g} MB"
        if number:
            label += f" ({result.speedup:.1f}x faster, {result.size_ratio:.1f}x smaller)"
        style: dict[str, Any] = {"markerfacecolor": "white", "markeredgewidth": 2} if number == 0 else {}
        marker = _MARKERS[number % len(_MARKERS)]
        axes.plot(result.ms, result.bytes / 1e6, marker, markersize=9, label=label, **style)
    _scale(axes.xaxis, axes.set_xlim, [result.ms for result in results])
    _scale(axes.yaxis, axes.set_ylim, [result.bytes / 1e6 for result in results])
    axes.set_xlabel("milliseconds per run")
    axes.set_ylabel("megabytes")
    axes.grid(which="both", alpha=0.2)
    figure.legend(loc="outside lower left", fontsize="small", frameon=False)
    with atomic_path(path) as temporary:
        figure.savefig(temporary, dpi=150)


def _scale(axis, set_limits, values: list[float]) -> None:
    """Sets the scale and limits of an axis."""
    if max(values) > _LOGARITHMIC_FROM * min(values):
        (axis.axes.set_xscale if axis.axis_name == "x" else axis.axes.set_yscale)("log")
        axis.set_major_formatter("{x:g}")
        set_limits(min(values) / 1.5, max(values) * 1.5)
    else:
        set_limits(0, 1.15 * max(values))


def short_names(results: "list[Measurement]") -> list[str]:
    """The files' names, with as many parent folders as make them different."""
    paths = [Path(result.path) for result in results]
    parts = 1
    while parts < max(len(path.parts) for path in paths):
        if len({path.parts[-parts:] for path in paths}) == len(set(paths)):
            break
        parts += 1
    return [str(Path(*path.parts[-parts:])) for path in paths]
