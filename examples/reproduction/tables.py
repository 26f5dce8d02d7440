"""Tables of the results, for the terminal and, with links, for the page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median

from rich.table import Table
from rich.text import Text

from paceline.examples.reproduction.own import MEDIAN_WITHIN, WORST_WITHIN, OwnResult
from paceline.examples.reproduction.rows import FITTED, REPRODUCED, Missed, Paper, Result

VERDICTS = (REPRODUCED, FITTED, *(one.value for one in Missed))
_LARGE = 1000  # from here on recomputed values have no decimals


def summary(found: Sequence[tuple[Paper, Sequence[Result]]]) -> Table:
    """Return the number of rows of each paper by verdict."""
    table = Table()
    for number, name in enumerate(("paper", "rows", *VERDICTS)):
        table.add_column(name, justify="right" if number else "left")
    total: Counter[str] = Counter()
    for paper, results in found:
        verdicts = Counter(one.verdict for one in results)
        total += verdicts
        table.add_row(paper.name, str(len(results)), *(str(verdicts[one]) for one in VERDICTS))
    table.add_row("all", str(sum(total.values())), *(str(total[one]) for one in VERDICTS))
    return table


def rows(paper: Paper, results: Sequence[Result], links: bool = False) -> Table:
    """Return the rows of a paper, with their notes as caption. `links`: measurements are links to their pages."""
    table = Table(title=None if links else paper.name, caption=_notes(results), caption_justify="left")
    headings = ("", "quantity", "source", "paper", "Paceline", "off by", "allowed", "verdict", "measured")
    for name in headings:
        table.add_column(name, justify="right" if name in ("", "off by", "allowed") else "left")
    for number, one in enumerate(results, 1):
        row = one.row
        cells = (
            str(number),
            row.quantity + (f" ({row.unit})" if row.unit else ""),
            f"{row.mark.value}, {row.place}",
            ", ".join(f"{value:g}" for value in one.published),
            ", ".join(map(_number, one.recomputed)),
            _percent(one.off, "+"),
            _percent(row.within) + (" and rounding" if row.printed else ""),
            one.verdict,
            _measured(one, links),
        )
        table.add_row(*map(Text, cells))
    return table


def impossible(paper: Paper) -> Table:
    """Return the results of a paper that cannot be recomputed."""
    table = Table(title=None)
    for name in ("result", "reason"):
        table.add_column(name)
    for what, why in paper.impossible:
        table.add_row(Text(what), Text(why))
    return table


def own_summary(found: Sequence[OwnResult]) -> Table:
    """Return the deviations of our own rows by kind: median, worst, and rows beyond the limit."""
    limits = f"median within {_percent(MEDIAN_WITHIN)}, worst within {_percent(WORST_WITHIN)}"
    table = Table(title=None, caption=f"Goal: {limits}.", caption_justify="left")
    names = (
        "simulated from",
        "rows",
        "median off by",
        "worst off by",
        f"rows off by more than {_percent(WORST_WITHIN)}",
    )
    for number, name in enumerate(names):
        table.add_column(name, justify="right" if number else "left")
    kinds = [
        (kind, [one for one in found if one.row.kind == kind]) for kind in dict.fromkeys(one.row.kind for one in found)
    ]
    for kind, of in [*kinds, ("all", list(found))]:
        off = [one.off for one in of]
        beyond = sum(one > WORST_WITHIN for one in off)
        table.add_row(kind, str(len(of)), _percent(median(off)), _percent(max(off)), str(beyond))
    return table


def own_rows(found: Sequence[OwnResult], links: bool = False) -> Table:
    """Return our own rows with their notes as caption. `links`: pages are links."""
    title = None if links else "Simulated and measured here"
    table = Table(title=title, caption=_numbered([one.row.note for one in found]), caption_justify="left")
    for name in ("", "quantity", "measured", "simulated", "simulated / measured", "page"):
        table.add_column(name, justify="left" if name in ("quantity", "page") else "right")
    for number, one in enumerate(found, 1):
        page = one.row.page
        name = page.rpartition("/")[2]
        values = (_number(one.measured), _number(one.simulated), f"{one.ratio:.3f}")
        table.add_row(str(number), Text(one.row.quantity), *values, Text(f"[{name}]({page})" if links else name))
    return table


def own_json(found: Sequence[OwnResult]) -> list[dict[str, object]]:
    """Return our own rows as JSON values."""
    return [
        {
            "kind": one.row.kind,
            "quantity": one.row.quantity,
            "measured": one.measured,
            "simulated": one.simulated,
            "ratio": one.ratio,
            "note": one.row.note,
        }
        for one in found
    ]


def as_json(results: Sequence[Result]) -> list[dict[str, object]]:
    """Return the rows as JSON values."""
    return [
        {
            "quantity": one.row.quantity,
            "mark": one.row.mark.value,
            "place": one.row.place,
            "unit": one.row.unit,
            "paper": list(one.published),
            "paceline": list(one.recomputed),
            "off": one.off,
            "within": one.row.within,
            "verdict": one.verdict,
            "measured": one.row.measured.text() if one.row.measured else None,
            "note": one.row.note,
        }
        for one in results
    ]


def _notes(results: Sequence[Result]) -> str:
    return _numbered([one.row.note for one in results])


def _numbered(notes: Sequence[str]) -> str:
    """Return a line for each note, with the numbers of its rows."""
    numbers: dict[str, list[str]] = {}
    for number, note in enumerate(notes, 1):
        if note:
            numbers.setdefault(note, []).append(str(number))
    return "\n".join(f"{', '.join(of)}: {note}" for note, of in numbers.items())


def _measured(one: Result, links: bool) -> str:
    measured = one.row.measured
    if measured is None:
        return ""
    return f"[{measured.text()}]({measured.anchor()})" if links else measured.text()


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= _LARGE else f"{value:.4g}"


def _percent(share: float, sign: str = "") -> str:
    """Return a share with one decimal; less than a twentieth of a per cent is 0."""
    value = round(100 * share, 1)
    return f"{value:{sign if value else ''}g} %" if value else "0 %"
