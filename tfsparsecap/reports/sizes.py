"""Weights and multiply-adds of the captioners of a report."""

from tfsparsecap.inference.finished_run import FinishedRun
from tfsparsecap.model_summary.figures import ALL, DECODER, ENCODER, Figures
from tfsparsecap.model_summary.model_summary import summary
from tfsparsecap.model_summary.table import amount
from tfsparsecap.reports.runs import NOTHING, Table

_WORDS, _BEAM = 9, 3


def size_row(label: str, run: FinishedRun) -> list[str]:
    """The row of a run: what slimming removed from it, and what pruning set to zero."""
    words = min(_WORDS, run.config.data.max_length)
    totals = summary(
        run.captioner, beam=_BEAM, words=words, compress=False, print_fn=lambda text: None
    ).totals
    encoder, decoder = totals.get(ENCODER), totals.get(DECODER, totals[ALL])

    def cells(figures: Figures | None) -> list[str]:
        if figures is None:
            return [NOTHING, NOTHING]
        return [f"{figures.weights:,}", amount(figures.flops_left / 2)]

    return [label, *cells(encoder), *cells(decoder), f"{decoder.nonzeros:,}"]


def sizes_table(rows: list[list[str]]) -> Table | None:
    """The table of `size_row`s; None if there are none."""
    columns = [
        "run",
        "weights of the image encoder",
        "multiply-adds",
        "weights of the decoder",
        "multiply-adds",
        "not zero",
    ]
    captions = f"captions of at most {_WORDS} words with beam {_BEAM}"
    return Table(f"Sizes, and multiply-adds of {captions}, without zeros", columns, rows) if rows else None
