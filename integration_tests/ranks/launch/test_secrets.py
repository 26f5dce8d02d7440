"""Secrets in the environment of a job: on no command line, in no file that the job leaves, in no line that it prints.

Horovod's own launcher: integration_tests/faults/test_launcher_privacy.py.
"""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from integration_tests.ranks.launch.test_rank import Job
from integration_tests.support.processes import PACELINE, finished, written

SECRETS = {"_HOROVOD_SECRET_KEY": "key-8d41c2", "API_TOKEN": "token-5150"}

# Every rank looks at all command lines of this machine; rank 1 fails at the end, so that the job also leaves reports.
SCRIPT = """
import os, pathlib, sys
import torch
import horovod.torch as hvd

hvd.init()
weight = torch.nn.Parameter(torch.ones(3))
optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=1.0), named_parameters=[("weight", weight)])
for step in range(6):
    optimizer.zero_grad()
    weight.sum().backward()
    optimizer.step()
seen = []
for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
    try:
        text = path.read_text(errors="replace")
    except OSError:
        continue
    seen += [name for name in ("_HOROVOD_SECRET_KEY", "API_TOKEN") if os.environ[name] in text]
print("SEEN", seen, flush=True)
hvd.allreduce(torch.ones(1), name="all have looked")
if sys.argv[1:] == ["fail"]:
    if hvd.rank() == 1:
        raise ValueError("rank failed on purpose")
    hvd.allreduce(torch.ones(1), name="never")
"""


def leaks(folder: Path, *texts: str) -> list[tuple[str, str]]:
    """Names of secrets and where they are: files in `folder`, as they are and unpacked, or these texts."""
    found = {f"text {number}": text.encode() for number, text in enumerate(texts)}
    for path in folder.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            found[str(path)] = gzip.decompress(content) if path.suffix == ".gz" else content
    return [(name, where) for name, value in SECRETS.items() for where, text in found.items() if value.encode() in text]


def files(folder: Path, *patterns: str) -> list[str]:
    """Patterns without a file."""
    return [pattern for pattern in patterns if not list(folder.glob(pattern))]


def job(folder: Path, *words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    kept = {"PACELINE_HISTORY": str(folder / "history"), "PACELINE_METRICS": str(folder / "metrics")}
    return finished(*PACELINE, *words, folder=folder, env={**SECRETS, **kept, **(env or {})})


def test_a_recorded_job_and_one_that_fails_leave_no_secret(tmp_path: Path) -> None:
    script = str(written(tmp_path, SCRIPT))
    (tmp_path / "metrics").mkdir()
    flags = ("-o", "trace.json", "--perfetto", "trace.gz", "--timeline-filename", str(tmp_path / "timeline.json"))
    good = job(tmp_path, "record", *flags, "-np", "2", sys.executable, script)
    assert good.returncode == 0, good.stderr
    bad = job(
        tmp_path, "run", "-np", "2", "--output-filename", str(tmp_path / "output"), sys.executable, script, "fail",
        env={"PACELINE_RECORD": str(tmp_path / "failed.json")},
    )  # fmt: skip
    assert bad.returncode != 0 and "ValueError: rank failed on purpose" in bad.stderr
    assert good.stdout.count("SEEN []") == 2, good.stdout
    assert [path.read_text().count("SEEN []") for path in tmp_path.glob("output/rank.*/stdout")] == [1, 1]
    assert files(
        tmp_path, "trace.json", "trace.gz", "timeline.json", "failed.json.flight/rank_*", "history/*.jsonl",
        "metrics/*.prom",
    ) == []  # fmt: skip
    shown = job(tmp_path, "run", "--dry-run", "-np", "2", sys.executable, script)
    texts = [one for done in (good, bad, shown) for one in (done.stdout, done.stderr)]
    assert leaks(tmp_path, *texts) == []


def test_tasks_of_paceline_rank_show_no_secret(tmp_path: Path) -> None:
    script = written(tmp_path, SCRIPT)

    def ends(options: Sequence[str], *arguments: str) -> list[tuple[int, str, str]]:
        command = (sys.executable, script)
        return Job("torchrun", 2, arguments, options, environ=lambda rank: SECRETS, command=command).ends()

    good, bad, shown = ends(()), ends((), "fail"), ends(("--dry-run",))
    assert [code for code, _, _ in good] == [0, 0], good
    assert all(code for code, _, _ in bad)
    assert all("SEEN []" in output for _, output, _ in (*good, *bad))
    texts = [text for _, *both in (*good, *bad, *shown) for text in both]
    assert leaks(tmp_path, *texts) == []
