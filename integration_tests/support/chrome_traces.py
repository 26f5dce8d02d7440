"""Checks of Chrome traces: the rules by which Perfetto and chrome://tracing show them as they are meant."""

from __future__ import annotations

import itertools
from collections import defaultdict
from typing import Any


def tracks(document: dict[str, Any]) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Return the slices by name of process and track, after checks of the format."""
    names: dict[tuple[int, int], str] = {}
    slices: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    for event in document["traceEvents"]:
        assert {"ph", "pid", "tid", "ts", "name"} <= event.keys(), event
        assert event["pid"] > 0 and event["tid"] >= 0
        place = (event["pid"], event["tid"])
        if event["ph"] == "M":
            if event["name"] in ("process_name", "thread_name"):
                assert place not in names, event
                names[place] = event["args"]["name"]
        elif event["ph"] == "X":
            assert event["tid"] > 0 and event["dur"] >= 0, event
            slices[place].append(event)
        else:
            assert event["ph"] == "C" and event["args"]["value"] >= 0, event
    found: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(dict)
    for (pid, tid), own in slices.items():
        assert names[pid, tid] not in found[names[pid, 0]] or "gradients" in names[pid, 0]
        for before, after in itertools.pairwise(own):
            ends, within = before["ts"] + before["dur"], after["ts"] + after["dur"]
            nested = names[pid, 0].startswith("Horovod") and within <= ends + 1e-3
            assert ends <= after["ts"] + 1e-3 or nested, (before, after)
        found[names[pid, 0]].setdefault(names[pid, tid], []).extend(own)
    return found


def counter(document: dict[str, Any], pid: int, name: str) -> list[float]:
    """Return the values of a process's counter in order of time."""
    events = [one for one in document["traceEvents"] if (one["ph"], one["pid"], one["name"]) == ("C", pid, name)]
    assert [one["ts"] for one in events] == sorted(one["ts"] for one in events)
    return [one["args"]["value"] for one in events]
