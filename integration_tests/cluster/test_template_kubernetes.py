"""The pods of an Indexed Job as processes on two emulated hosts, with the names and variables that Kubernetes gives."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import yaml

from integration_tests.support import tasks
from integration_tests.support.cluster import DIGITS, QUIET, digits_result
from integration_tests.support.templates import made
from paceline.examples.benchmarks.cluster import Cluster

SUBDOMAIN = "digits.default.svc.cluster.local"
LIMIT_S = 150.0

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(hosts=2) as cluster:
        # What the headless service gives the pods: their names.
        lines = [
            f"{address} digits-{pod}.{SUBDOMAIN} digits-{pod}.digits digits-{pod}"
            for pod, address in enumerate(cluster.addresses)
        ]
        cluster.run(["sh", "-c", 'printf "%s\\n" "$@" >> /etc/hosts', "sh", *lines], timeout_s=20)
        yield cluster


def run_pods(cluster: Cluster, command: Sequence[str]) -> str:
    """Run `command` as two pods, one on each host, to their ends; all output."""
    pods = [
        cluster.popen(
            ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', f"digits-{pod}", *command],
            host=pod,
            env={
                **QUIET,
                **tasks.kubernetes(pod, 2),
                "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for pod in range(2)
    ]
    try:
        output = "".join(pod.communicate(timeout=LIMIT_S)[0] for pod in pods)
    finally:
        for one in pods:
            one.kill()
    assert [pod.returncode for pod in pods] == [0, 0], output
    return output


@pytest.mark.more
def test_the_pods_of_the_template_train_the_digits(cluster: Cluster, tmp_path: Path) -> None:
    options = ("--nodes", "2", "--ranks-per-node", "2", "--name", "digits", "--image", "train:1", "--fusion", "optimal")
    _, job = yaml.safe_load_all(made(tmp_path, "kubernetes", *options, *DIGITS, "--epochs", "8").read_text())
    (container,) = job["spec"]["template"]["spec"]["containers"]
    # Kubernetes turns $$ into $ in a pod's command.
    words = [word.replace("$$", "$") for word in (*container["command"], *container["args"])]
    variables = [f"{one['name']}={one['value']}" for one in container["env"] if "value" in one]
    result = digits_result(run_pods(cluster, ["env", *variables, *words]))
    assert result["accuracy"] > 0.9
    assert result["fusion"]["policy"] == "optimal"


def test_a_pod_finds_rank_0_by_its_own_name(cluster: Cluster) -> None:
    words = (sys.executable, "-m", "paceline.launch.cli", "rank", "--size", "2", "--", *DIGITS, "--epochs", "1")
    digits_result(run_pods(cluster, words))
