"""Plain horovodrun crosses the emulated hosts with ordinary Horovod scripts that know nothing of Paceline."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.launch.cluster import Cluster

SCRIPTS = Path(__file__).parent / "scripts"
HOROVODRUN = Path(sys.executable).parent / "horovodrun"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(hosts=4, rate="1gbit") as cluster:
        yield cluster


@pytest.mark.timeout(240)
@pytest.mark.parametrize("script", ["plain_torch.py", "plain_keras.py"])
def test_unmodified_script_trains_over_four_hosts(cluster: Cluster, script: str) -> None:
    assert "paceline" not in (SCRIPTS / script).read_text()
    before = cluster.counters()
    done = cluster.run(
        [HOROVODRUN, "-np", "4", "-H", cluster.host_list, sys.executable, SCRIPTS / script],
        env={"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "2"},
        timeout_s=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    reports = sorted(
        (json.loads(text) for text in re.findall(r"REPORT (\{.*\})", done.stdout)), key=lambda report: report["rank"]
    )
    assert [
        (report["rank"], report["size"], report["local_rank"], report["cross_size"], report["host"])
        for report in reports
    ] == [(rank, 4, 0, 4, f"host{rank}") for rank in range(4)]
    assert len({report["checksum"] for report in reports}) == 1
    assert min(report["accuracy"] for report in reports) > 0.9
    # The gradients did cross the links: 38 kB of them in each of 15 epochs' 9 steps.
    for old, new in zip(before, cluster.counters(), strict=True):
        assert min(new.sent_bytes - old.sent_bytes, new.received_bytes - old.received_bytes) > 1_000_000
