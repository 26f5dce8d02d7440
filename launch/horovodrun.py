"""horovodrun of this Python: its command line, its flags, and its argument parser."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from paceline.errors import UserError

# Number of values after each flag, in Horovod 0.28.1.
_WITHOUT_VALUE = """-h --help -v --version -cb --check-build --disable-cache --verbose --hierarchical-allreduce
    --no-hierarchical-allreduce --hierarchical-allgather --no-hierarchical-allgather --torus-allreduce
    --no-torus-allreduce --autotune --no-autotune --timeline-mark-cycles --no-timeline-mark-cycles --no-stall-check
    --stall-check --mpi-threads-disable --no-mpi-threads-disable --tcp --log-with-timestamp --log-without-timestamp
    -prefix-timestamp --prefix-output-with-timestamp --log-hide-timestamp --no-log-hide-timestamp --gloo --mpi
    --jsrun"""
_WITH_VALUE = """-np --num-proc --start-timeout --network-interfaces --network-interface --output-filename --config-file
    -p --ssh-port -i --ssh-identity-file --fusion-threshold-mb --cycle-time-ms --cache-capacity --autotune-log-file
    --autotune-warmup-samples --autotune-steps-per-sample --autotune-bayes-opt-max-samples
    --autotune-gaussian-process-noise --min-np --min-num-proc --max-np --max-num-proc --slots-per-host
    --elastic-timeout --reset-limit --timeline-filename --stall-check-warning-time-seconds
    --stall-check-shutdown-time-seconds --mpi-args --binding-args --num-nccl-streams --thread-affinity
    --gloo-timeout-seconds --log-level -H --hosts -hostfile --hostfile --host-discovery-script"""
FLAGS = {
    **dict.fromkeys(_WITHOUT_VALUE.split(), 0),
    **dict.fromkeys(_WITH_VALUE.split(), 1),
    "--blacklist-cooldown-range": 2,
}
# horovodrun prefixes every line with its rank: [0]<stdout>: or, with MPI, [1,0]<stdout>:. A timestamp may come first.
MARKED = re.compile(r"^[\w :]*\[(?:\d+,)?(?P<rank>\d+)\]<std(?:out|err)>:")
# Flags that only print information and start no rank.
ANSWERS = frozenset({"-v", "--version", "-cb", "--check-build"})


def words() -> list[str]:
    """Return the command of horovodrun: the script next to this Python, or the module if there is no script.

    Raises UserError if Horovod is not installed.
    """
    if importlib.util.find_spec("horovod") is None:
        raise UserError(
            f"Horovod is not installed for {sys.executable}.",
            "Run `paceline horovod install`.",
        )
    script = Path(sys.executable).with_name("horovodrun")
    return [str(script)] if os.access(script, os.X_OK) else [sys.executable, "-m", "horovod.runner.launch"]


def parsed(arguments: Sequence[str], command: Sequence[str]) -> argparse.Namespace:
    """Parse arguments as horovodrun does. Raises UserError where it would print its usage or a traceback."""
    words()  # raises if Horovod is not installed
    from horovod.runner import launch

    before, sys.argv = sys.argv, ["horovodrun", *arguments, *command]
    try:
        with contextlib.redirect_stderr(io.StringIO()) as said:
            found: argparse.Namespace = launch.parse_args()
            return found
    except (OSError, ValueError) as error:  # of --config-file
        problem = f"horovodrun: {error}."
    except SystemExit as ended:
        if not ended.code:  # --help
            raise
        problem = f"{said.getvalue().splitlines()[-1].replace('error: ', '', 1)}."
    finally:
        sys.argv = before
    raise UserError(problem, "`horovodrun --help` explains its options.")
