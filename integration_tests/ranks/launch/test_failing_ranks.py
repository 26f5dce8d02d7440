"""`paceline run` where one rank of three fails: which rank the report names, and how many lines a terminal gets."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from integration_tests.support.more import first_of
from integration_tests.support.processes import PACELINE, finished
from integration_tests.support.ranks import ROOT

SCRIPT = ROOT / "integration_tests" / "support" / "failing_script.py"
MOST_LINES = 30
RAISES = "ValueError: {place} fails on purpose"
# place: text that the report has for the rank that fails there; {place} and {rank} are filled in.
SAID = {
    "data": RAISES,
    "forward": RAISES,
    "backward": RAISES,
    "optimizer": RAISES,
    "loss": RAISES,
    "memory": "MemoryError: cannot allocate 64 GiB",
    "nan": "FloatingPointError: loss is nan",
    "interrupt": "KeyboardInterrupt",
    "shapes": "RuntimeError: mat1 and mat2 shapes cannot be multiplied",
    "syntax": "SyntaxError: ",
    "sigkill": "Rank {rank} failed first, with exit code 137: ended by SIGKILL.",
    "sys_exit": "Rank {rank} failed first, with exit code 3.",
    "os_exit": "Rank {rank} failed first, with exit code 4.",
    "uneven": "Rank {rank} ended its script after 3 steps while ",
}
# fmt: off
TABLE = [
    # system, place, rank
    ("ddp", "data", 0), ("ddp", "forward", 1), ("ddp", "backward", 2), ("ddp", "optimizer", 1), ("ddp", "memory", 2),
    ("ddp", "nan", 0), ("ddp", "shapes", 1), ("ddp", "syntax", 1), ("ddp", "interrupt", 2), ("ddp", "sigkill", 2),
    ("ddp", "sys_exit", 1), ("ddp", "os_exit", 0), ("ddp", "uneven", 1),
    ("pipeline", "data", 0), ("pipeline", "forward", 0), ("pipeline", "forward", 1), ("pipeline", "forward", 2),
    ("pipeline", "backward", 1), ("pipeline", "optimizer", 0), ("pipeline", "loss", 2), ("pipeline", "shapes", 1),
    ("pipeline", "interrupt", 0), ("pipeline", "sigkill", 1), ("pipeline", "sys_exit", 0), ("pipeline", "os_exit", 2),
    ("pipeline", "uneven", 1),
]
# fmt: on


@pytest.mark.parametrize(
    "case",
    first_of(TABLE, ("ddp", "uneven", 1), ("pipeline", "backward", 1)),
    ids=lambda case: "-".join(map(str, case)),
)
def test_rank_that_failed_first_is_named_in_a_few_lines(case: tuple[str, str, int], tmp_path: Path) -> None:
    system, place, rank = case
    (tmp_path / "broken.py").write_text("def train(:\n    pass\n")
    start = f'test "$HOROVOD_RANK" = {rank} && test {place} = syntax && exec "$0" broken.py; exec "$0" "$@"'
    command = ["sh", "-c", start, sys.executable, str(SCRIPT), system, place, str(rank)]
    words = [*PACELINE, "run", "-np", "3", *command]
    done = finished(*words, folder=tmp_path, timeout_s=280, env={"TMPDIR": str(tmp_path)})
    assert done.returncode == 1, done.stderr
    lines = (done.stdout + done.stderr).splitlines()
    problem, remedy = lines[-2:]
    print(f"{system:8} {place:9} rank {rank}: {len(lines)} lines. {problem} {remedy}")
    assert problem.startswith(f"Error: Rank {rank} ")
    assert SAID[place].format(place=place, rank=rank) in problem
    assert len(lines) <= MOST_LINES, done.stderr
    if SAID[place] == RAISES:
        assert f'File "{SCRIPT}", line ' in done.stderr
    file = re.search(r"The output of all ranks: (\S+)$", remedy)
    if place not in ("syntax", "sigkill", "sys_exit", "os_exit"):
        assert file is not None
    if file:
        assert re.search(r"^\[\d\]<stderr>:", Path(file[1]).read_text(), re.M)
