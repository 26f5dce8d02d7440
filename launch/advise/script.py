"""The user's script, run for some steps under one setting while its steps are recorded."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import structs

from paceline import config, variables
from paceline.debug_values import CYCLE
from paceline.errors import UserError
from paceline.launch import flags, run
from paceline.launch.enough import Enough
from paceline.launch.failures.verdict import Verdict
from paceline.record import trace
from paceline.registry.policies import EXCLUDING, OPTIMAL

# Options that are equal in every run: needed by the script or its network, not compared.
KEPT = frozenset({"progress", "drain_limit_s", "network_file", "weight", "debug", "cache_dir"})
SHOWN = ("stderr", "stderr")  # streams for the script's output: the table goes to standard output
HIDDEN = ("", "")
# Steps in which ranks measure coordination, after the first messages of growing sizes.
MEASURED_STEPS = 5
# Shares of the first steps, which do not count: ranks measure costs in about 12 steps, and a plan of merging is in
# force after about 20.
RECORDED_SKIP, MEASURED_SKIP = 1 / 3, 1 / 2


@dataclass(frozen=True)
class Outcome:
    """End of a run. `recorded`: None if no rank wrote a trace. `timed_out`: the time limit ended it."""

    code: int
    verdict: Verdict
    recorded: trace.Trace | None
    timed_out: bool = False

    @property
    def steps(self) -> int:
        """Number of complete steps, on the rank that made the most."""
        ranks = self.recorded.ranks if self.recorded is not None else ()
        return max((rank.steps[-1].index + 1 for rank in ranks if rank.steps), default=0)


@dataclass(frozen=True)
class Script:
    """A command to run: horovodrun's arguments and the command of the ranks.

    A run makes steps for at least `least_s` seconds, and ends after `limit_s`.
    """

    horovodrun_arguments: Sequence[str]
    command: Sequence[str]
    folder: Path
    least_s: int
    limit_s: float
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    @property
    def set_aside(self) -> dict[str, str]:
        """Variables of the user that choose a setting; runs are started without them."""
        compared = {one.variable for one in config.OPTIONS if one.scope == "run" and one.name not in KEPT}
        return {name: text for name, text in self.environ.items() if name in compared and text}

    def record(self, steps: int) -> Outcome:
        """Run with Horovod's own merging; meanwhile the ranks measure the cost of messages."""
        measuring = {} if self._excludes_plans else {"fusion": OPTIMAL}
        debug = f"wake={CYCLE},fusion_follow=no,fusion_warmup_steps={MEASURED_STEPS}"
        return self._run(measuring, debug, steps, RECORDED_SKIP, SHOWN)

    def measure(self, options: Mapping[str, str], steps: int) -> Outcome:
        """Run under the setting of `options`, by name; the second half of the recorded steps counts."""
        return self._run(options, "record_buckets=yes,fusion_trial_steps=0", steps, MEASURED_SKIP, HIDDEN)

    @property
    def _excludes_plans(self) -> bool:
        switches = any(variables.switched_on(name, self.environ) for name in EXCLUDING)
        return switches or "--autotune" in self.horovodrun_arguments

    def _run(self, options: Mapping[str, str], debug: str, steps: int, skip: float, show: tuple[str, str]) -> Outcome:
        path = self.folder / "trace.json"
        for part in trace.parts(path):
            part.unlink()
        users = self.environ.get(_variable("debug"), "")
        debug = ",".join(filter(None, (users, debug, f"record_stop={steps},record_stop_s={self.least_s}")))
        quiet = {} if show == SHOWN else {"progress": "no"}
        given = {**options, **quiet, "record": str(path), "debug": debug}
        left = {name: text for name, text in self.environ.items() if name not in self.set_aside}
        environ = {**left, **flags.environment(given)}
        job = run.job(self.horovodrun_arguments, self.command, environ, config.read(environ))
        enough = Enough(self.limit_s)
        code, verdict = run.finished(job, enough, show)
        recorded = _merged(path)
        return Outcome(code, verdict, recorded and _later(recorded, skip), enough.timed_out)


def _variable(name: str) -> str:
    return config.PREFIX + name.upper()


def _later(recorded: trace.Trace, skip: float) -> trace.Trace:
    """Return the trace without the first `skip` of each rank's steps."""
    ranks = []
    for rank in recorded.ranks:
        first = int(skip * (rank.steps[-1].index + 1)) if rank.steps else 0
        ranks.append(structs.replace(rank, steps=tuple(step for step in rank.steps if step.index >= first)))
    return structs.replace(recorded, ranks=tuple(ranks))


def _merged(path: Path) -> trace.Trace | None:
    """Return the trace of all ranks that wrote one, and remove their files."""
    parts = trace.parts(path)
    if not parts:
        return None
    try:
        merged = trace.merge([trace.load(part) for part in parts])
    except ValueError as error:
        raise UserError(
            f"The ranks' traces in {path.parent} do not belong together: {error}.", "Run the command again."
        ) from None
    for part in parts:
        part.unlink()
    return merged
