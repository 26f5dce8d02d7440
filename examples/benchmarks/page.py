"""A page with the tables of cases between two markers; the text around them stays unchanged."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

from paceline.errors import UserError
from paceline.examples.benchmarks.cases import CASES, KINDS, Case, benchmark
from paceline.examples.benchmarks.harness.report import as_table
from paceline.examples.benchmarks.kept import KeptCase
from paceline.examples.benchmarks.markdown import lines
from paceline.launch import outputs

BEGIN = "<!-- begin of what `python -m examples.benchmarks` writes -->"
END = "<!-- end of what `python -m examples.benchmarks` writes -->"
_BLOCK = re.compile(r"<!-- row (\S+) -->\n(.*?)<!-- end of row -->\n", re.DOTALL)
_ROOT = "sudo env PATH=$PATH "
_COLUMNS = 120  # of lines of text


def check(path: Path) -> None:
    """Raise UserError if `path` cannot take the tables, before anything is measured. A missing page is created."""
    outputs.check(path, "the page")
    if path.exists():
        _parts(path)


def write(path: Path, case: Case, kept: KeptCase) -> None:
    """Write a case between the markers. Other cases stay there unchanged; unknown cases are removed.

    Raises UserError as `check`.
    """
    before, written, after = _parts(path)
    blocks = {**dict(_BLOCK.findall(written)), case.name: "".join(f"{line}\n" for line in as_markdown(case, kept))}
    body = ""
    for kind in KINDS:
        there = [one.name for one in CASES if one.kind == kind and one.name in blocks]
        body += f"\n### {benchmark(kind).title}, as measured\n\n" if there else ""
        body += "\n".join(f"<!-- row {name} -->\n{blocks[name]}<!-- end of row -->\n" for name in there)
    part = path.with_name(path.name + ".part")
    part.write_text(f"{before}{BEGIN}\n{body}\n{END}{after}")
    part.replace(path)


def as_markdown(case: Case, kept: KeptCase) -> Iterator[str]:
    """Return a case's part of a page: title, command, date and machine, and a table for each result."""
    yield f"#### {case.name}: {case.title}"
    yield from ("", f"    {_ROOT if case.needs_root else ''}{kept.command}", "")
    yield from textwrap.wrap(_when(kept), _COLUMNS, break_on_hyphens=False)
    kind = benchmark(case.kind)
    for result in kept.results:
        yield ""
        yield from lines(as_table(result, kind.rows, kind.columns))


def _when(kept: KeptCase) -> str:
    date, _, clock = kept.begun.partition("T")
    machine = kept.machine
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items() if version)
    loads = [result["machine"]["load_average"] for result in kept.results]
    turns = sorted({system["turns"] for result in kept.results for system in result["systems"].values()})
    span = " to ".join(map(str, turns[:1] + turns[1:][-1:]))
    said = f"Measured {date} {clock[:5]} UTC in {kept.took_s:.0f} s; load average before each table"
    said += f" {', '.join(f'{load:g}' for load in loads)}; {span} turns."
    said += " Quick: too short to rely on." if kept.quick else ""
    kernel = ".".join(machine["kernel"].split(".")[:2])
    kernel += f" with TCP's {machine['tcp']}" if machine.get("tcp") else ""
    return f"{said} {machine['cores']} cores of {machine['processor']}, Linux {kernel}, {versions}."


def _parts(path: Path) -> tuple[str, str, str]:
    """Return the page before the markers, between them and after."""
    if not path.exists():
        return "# Benchmarks\n\n", "", "\n"
    text = path.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise UserError(
            f"The page {path} does not say where the tables belong.", f'Put two lines there: "{BEGIN}", "{END}".'
        )
    before, _, rest = text.partition(BEGIN)
    written, _, after = rest.partition(END)
    return before, written, after
