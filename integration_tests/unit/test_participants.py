"""The order in which hooks ask participants is declared with its reasons, and the reasons hold."""

from __future__ import annotations

import re
from pathlib import Path

BRIDGE = Path(__file__).parents[2] / "plugin" / "bridge"
_REASON = re.compile(r"// (Before|After) k(\w+) in ([\w, ]+): \w")
_BACKWARDS = "RoundPerformed"  # asks the last one first


def _declared() -> dict[str, list[tuple[str, str]]]:
    """Participants in their order, each with pairs (another one, hook) where the other must be later in this order."""
    body = (BRIDGE / "priorities.h").read_text().partition("enum class Priority {")[2].partition("};")[0]
    found: dict[str, list[tuple[str, str]]] = {}
    reasons: list[tuple[str, str]] = []
    for line in body.strip().splitlines():
        text = line.strip()
        if text.startswith("//"):
            match = _REASON.match(text)
            assert match is not None, f"expected '// Before kOther in Hook: reason', found {text!r}"
            hooks = match[3].split(", ")
            assert (match[1] == "After") == (hooks == [_BACKWARDS]), text
            reasons += [(match[2], hook) for hook in hooks]
        else:
            found[text.removeprefix("k").removesuffix(",")] = reasons
            reasons = []
    return found


def _class(name: str) -> str:
    for path in BRIDGE.rglob("*.h"):
        match = re.search(rf"^class {name} : public .*?^}};", path.read_text(), re.DOTALL | re.MULTILINE)
        if match is not None:
            return match[0]
    raise AssertionError(f"no participant {name}")


def test_participants_have_one_priority_and_stand_where_their_reasons_want_them() -> None:
    listed = re.findall(r"\{Priority::k(\w+), ", (BRIDGE / "participants.cc").read_text())
    assert listed == list(_declared()), "the list in participants.cc reads in the order of priorities.h"
    # Participants are placed as their reasons demand.
    declared = _declared()
    order = list(declared)
    reasons = [(name, other, hook) for name, before in declared.items() for other, hook in before]
    assert len(reasons) >= 8
    for name, other, hook in reasons:
        assert order.index(name) < order.index(other), f"{name} must stand before {other}: {hook}"
        for one in (name, other):
            assert re.search(rf"\b{hook}\([^;{{]*\) override", _class(one)), f"{one} has no part in {hook}"
