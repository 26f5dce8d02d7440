"""Results of `paceline bench collectives --json` as a table for a page.

python -m paceline.launch.benchmarks.collectives.markdown RESULTS.json ...
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from paceline.launch.quantities import size_name

_TITLES = (
    "operation",
    "size",
    "ranks",
    "system",
    "call ms",
    "message ms",
    "wire",
    "bound",
    "CPU ms",
    "/ gloo",
    "/ ddp",
)


def lines(results: Iterable[dict[str, Any]]) -> Iterator[str]:
    """A row per result and system; ratios are of calls."""
    yield f"| {' | '.join(_TITLES)} |"
    yield "| --- | ---: | ---: | --- |" + " ---: |" * (len(_TITLES) - 4)
    for result in results:
        operation = result["operation"]
        for name, system in result["systems"].items():
            ratios = [
                result["ratios"].get(f"{name.replace('+', '_')}_over_{rival}_{operation}", {}).get("median")
                for rival in ("gloo", "ddp")
            ]
            cells = [
                operation,
                size_name(result["size_bytes"]),
                str(result["ranks"]),
                name,
                _with_interval(system["call_ms"]),
                f"{system['message_ms']['median']:.4g}",
                *map(_share, (system["wire_share"], system["bound_share"])),
                f"{system['cpu_ms_per_call']:.3g}",
                *map(_share, ratios),
            ]
            yield f"| {' | '.join(cells)} |"


def _with_interval(figure: dict[str, float]) -> str:
    return f"{figure['median']:.4g} [{figure['low']:.4g}, {figure['high']:.4g}]"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


if __name__ == "__main__":
    found = (json.loads(line) for path in sys.argv[1:] for line in Path(path).read_text().splitlines())
    print("\n".join(lines(found)))
