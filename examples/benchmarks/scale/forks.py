"""All ranks of a system from one process that has imported PyTorch: so many of them have no room for it each.

    python -m paceline.examples.benchmarks.scale.forks PLACE CASE SYSTEM

PLACE has no rank: every child gets its own.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import traceback
from dataclasses import replace

from paceline.examples.benchmarks.harness import crew_rank
from paceline.examples.benchmarks.harness.assignment import Place
from paceline.examples.benchmarks.scale import rank, systems
from paceline.examples.benchmarks.scale.cases import Case

_IMPORTED = (
    "horovod.torch",
    "horovod.runner.gloo_run",
    "horovod.runner.http.http_server",
    "paceline.examples.benchmarks.harness.system_horovod",
    "paceline.fusion.driver",
    "paceline.fusion.report",
    "paceline.record.snapshot",
)


def main(place_text: str, case_text: str, system_name: str) -> int:
    """Start the ranks and wait for their end; 0, or the status of the first that failed, with which the others end."""
    place, case, system = Place.from_json(place_text), Case(**json.loads(case_text)), systems.find(system_name)
    crew_rank.end_with_parent()
    crew_rank.redirect_output(crew_rank.log_path(place.folder, 0))
    _import_all()
    pids = {_fork(replace(place, rank=number), case, system) for number in range(place.size)}
    failed = 0
    while pids:
        pid, status = os.wait()
        pids.discard(pid)
        if status and not failed:
            failed = os.waitstatus_to_exitcode(status) or 1
            for other in pids:
                os.kill(other, signal.SIGKILL)  # also where it is stopped
    return failed


def _import_all() -> None:
    """What ranks import, once for all of them. None of it starts a thread, which a fork would not have."""
    for module in _IMPORTED:
        importlib.import_module(module)


def _fork(place: Place, case: Case, system: systems.ScaleSystem) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        crew_rank.serve(
            place.rank, place.folder, place.control, lambda control: rank.serve(place, case, system, control)
        )
    except BaseException:
        traceback.print_exc()
    finally:
        # No code of the parent's may run here.
        os._exit(status)


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
