"""Pages: docs/reference/limits.md has the limits of waits, links of README lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from integration_tests.support.packages import ROOT
from paceline import config
from paceline.collectives import probed
from paceline.exchange import channel_owners
from paceline.launch.rank.channel import SILENCE_S
from paceline.lifecycle import SHUTDOWN_LIMIT_S
from paceline.native.agreement import MEET_LIMIT_S
from paceline.native.in_flight import SETTLE_LIMIT_S

# A constant in C++: the file, how it is written there, seconds of one.
IN_CPP = {
    "armed step": ("bridge/armed/armed.h", r"kLongestTimeout_ns = ([\d']+);", 1e-9),
    "coordination": ("bridge/coordination/coordination.h", r"kHeartbeat\{(\d+)\};", 1e-3),
    "liveness check": ("core/failure/peer_watch.h", r"kAnswers\{(\d+)\};", 1e-3),
    "standstill": ("core/partial/standstill.h", r"kLimit_ns = ([\d']+);", 1e-9),
    "transport": ("bridge/participants.cc", r"HOROVOD_GLOO_TIMEOUT_SECONDS, (\d+)\)", 1.0),
}


def _rows() -> dict[str, list[str]]:
    lines = (ROOT / "docs/reference/limits.md").read_text().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return {row[0].split(":")[0]: row for row in cells[2:]}


def _limits_s() -> dict[str, float]:
    limits_s = {
        "release": channel_owners.RELEASE_LIMIT_S,
        "meeting": MEET_LIMIT_S,
        "settling": SETTLE_LIMIT_S,
        "shutdown": SHUTDOWN_LIMIT_S,
        "launcher": SILENCE_S,
        "drain": config.read({}).drain_limit_s,
    }
    for name, (file, pattern, unit_s) in IN_CPP.items():
        found = re.search(pattern, (ROOT / "plugin" / file).read_text())
        assert found, f"{file} has no {pattern}"
        limits_s[name] = int(found[1].replace("'", "")) * unit_s
    return limits_s


def test_the_table_has_the_limits_in_order() -> None:
    rows = _rows()
    for name, limit_s in _limits_s().items():
        assert re.search(rf"\b{limit_s:g} s\b", rows[name][1]), f"{name}: {limit_s} s, found {rows[name][1]}"
    assert probed.LIMIT_S == MEET_LIMIT_S
    # Waits end before those that depend on them.
    limits_s = _limits_s()
    for name, row in _rows().items():
        if row[3]:
            assert limits_s[name] < limits_s[row[3]], f"{name} must end before {row[3]}"


def test_limits_that_follow_a_smaller_one_of_the_transports() -> None:
    """A user's HOROVOD_GLOO_TIMEOUT_SECONDS may be below all others."""
    armed = (ROOT / "plugin/bridge/armed/armed.cc").read_text()
    assert re.search(r"std::min\(\{[^}]*kLongestTimeout_ns,[^}]*Limit\(process_set\)\.count\(\)\} / 2\}\)", armed)
    coordination = (ROOT / "plugin/bridge/coordination/coordination.cc").read_text()
    assert "std::min<Clock::duration>(kHeartbeat, limit_())" in coordination


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
