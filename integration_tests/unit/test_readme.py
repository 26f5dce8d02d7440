"""README: its links lead somewhere, and its numbers stand where they lead."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from integration_tests.support.packages import ROOT

_LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<path>[^)#]*)(?:#(?P<anchor>[^)]*))?\)")
PAGES = ("README.md", "docs/README.md")


def _slug(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.strip("# \n").lower()).replace(" ", "-")


def _section(page: str, anchor: str | None) -> str:
    """Return the text below the heading with that anchor, up to the next of its level; the whole page without one."""
    if anchor is None:
        return page
    parts = re.split(r"^(#+ .*)$", page, flags=re.MULTILINE)
    for place in range(1, len(parts), 2):
        if _slug(parts[place]) == anchor:
            level = len(parts[place]) - len(parts[place].lstrip("#"))
            rest = "".join(parts[place + 1 :])
            return re.split(rf"^#{{1,{level}}} ", rest, maxsplit=1, flags=re.MULTILINE)[0]
    raise AssertionError(f"no heading has the anchor {anchor}")


LINKS = [
    pytest.param(page, match["text"], match["path"], match["anchor"], id=f"{page}-{match[0]}")
    for page in PAGES
    for match in _LINK.finditer((ROOT / page).read_text())
    if "://" not in match["path"]
]


@pytest.mark.parametrize(("page", "text", "path", "anchor"), LINKS)
def test_links_lead_to_what_they_promise(page: str, text: str, path: str, anchor: str | None) -> None:
    target = (ROOT / page).parent / path
    assert target.exists()
    if target.suffix == ".md":
        section = _section(Path(target).read_text(), anchor)
        for number in re.findall(r"\d+\.\d+", text):
            assert number in section, f"{number} does not stand in {path}#{anchor}"
