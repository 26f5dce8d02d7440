"""The matrix of concurrent activities: everything that a script does beside a training, under every exchange.

    python -m integration_tests.concurrency --cases 20
    python -m integration_tests.concurrency --activity join twin --exchange pipelined --ranks 3
    python -m integration_tests.concurrency --rules         (combinations that are left out or refused, with reasons)

Each case draws a random order of training steps and acts from its seed, equal on all ranks. Exits with 1 if a value is
wrong, a rank hangs or fails, or a refusal does not come or does not say why.
"""

from __future__ import annotations

import argparse
import sys

from rich.console import Console

from integration_tests.concurrency.cases import Case
from integration_tests.concurrency.runs import Line, run_all, table
from integration_tests.concurrency.table import ACTIVITIES, EXCHANGES, FRAMEWORKS, REFUSALS, RULES, cases, combinations
from integration_tests.support import selection
from integration_tests.support.ranks import end_all


def chosen(arguments: argparse.Namespace) -> list[Case]:
    """Cases that the arguments select."""
    found = [
        case
        for case in cases(arguments.seed)
        if (not arguments.activity or case.activity in arguments.activity)
        and (not arguments.exchange or case.exchange in arguments.exchange)
        and arguments.framework in ("", case.framework)
        and arguments.backend in ("", case.backend)
        and arguments.ranks in (0, case.size)
    ]
    return selection.selected(found, arguments)


def rules(seed: int) -> list[str]:
    """Number of cases, and each rule and refusal with its number of cases."""
    everything = combinations(seed)
    lines = [f"{len(everything)} combinations, {len(cases(seed))} cases"]
    lines += [f"left out, {sum(map(rule.excludes, everything))}: {rule.reason}" for rule in RULES]
    return lines + [f"refused, {sum(map(one.matches, cases(seed)))}: {one.reason}" for one in REFUSALS]


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--activity", nargs="+", default=[], choices=[*ACTIVITIES])
    parser.add_argument("--exchange", nargs="+", default=[], choices=EXCHANGES, metavar="EXCHANGE")
    parser.add_argument("--framework", default="", choices=sorted({"", *(one for one, _ in FRAMEWORKS)}))
    parser.add_argument("--backend", default="", choices=sorted({one for _, one in FRAMEWORKS}))
    parser.add_argument("--ranks", type=int, default=0, help="number of ranks; otherwise 2 to 5")
    parser.add_argument("--rules", action="store_true", help="run nothing; print what is left out or refused, and why")
    parser.add_argument("--brief", action="store_true", help="without the output of ranks")
    selection.add_arguments(parser)
    arguments, console = parser.parse_args(), Console(width=200)

    def show(line: Line) -> None:
        console.print(str(line), markup=False, highlight=False, soft_wrap=True)
        if line.problem and not arguments.brief:
            console.print(line.problem, markup=False, highlight=False, soft_wrap=True)

    if arguments.rules:
        console.print("\n".join(rules(arguments.seed)), markup=False, highlight=False, soft_wrap=True)
        return 0
    try:
        lines = run_all(chosen(arguments), show, arguments.minutes)
    finally:
        end_all()
    console.print(table(lines))
    return 1 if any(line.problem for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
