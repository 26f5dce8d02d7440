"""Objects for Kubernetes: against the published schemas, and the pods' script run as Kubernetes would run it."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from integration_tests.unit.launch.templates.cases import (
    COMMAND,
    RANKS_PER_NODE,
    VARIABLE,
    Case,
    cases,
    invoke,
    kubeflow,
    mpijob_schema,
    needed,
    objects,
    printed,
    table,
)
from integration_tests.unit.launch.templates.test_scripts import RECORDER, shellcheck

OLDEST, NEWEST = "1.25", "1.37"  # versions of Kubernetes, as in the package
DEFAULT_RESOURCES = {"cpu": "12", "memory": "65536Mi"}


def expanded(text: str, variables: dict[str, str]) -> str:
    """Word of a container as Kubernetes passes it: $(NAME) becomes the variable if it exists, and $$ a dollar."""

    def replace(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        return variables.get(found[1], found[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", replace, text)


def container(pod: dict[str, Any]) -> dict[str, Any]:
    (only,) = pod["spec"]["containers"]
    assert isinstance(only, dict)
    return only


def check_variables(env: list[dict[str, str]]) -> None:
    values = {one["name"]: expanded(one["value"], {}) for one in env}
    assert values[VARIABLE[0]] == VARIABLE[1]
    assert (values["PACELINE_FUSION"], values["PACELINE_EXCHANGE"]) == ("optimal", "pipelined")


def check_mpirun(case: Case, words: list[str]) -> None:
    words = [expanded(word, {"HOME": "/wrong"}) for word in words]
    assert tuple(words[-len(COMMAND) :]) == COMMAND
    wait, before = words[: words.index("mpirun")], words[words.index("mpirun") : -len(COMMAND)]
    assert (wait[:2], wait[3:]) == (["/bin/sh", "-c"], ["sh"])
    assert before[:3] == ["mpirun", "-np", str(case.ranks)]
    forwarded = [after for word, after in itertools.pairwise(before) if word == "-x"]
    assert {VARIABLE[0], "PACELINE_FUSION", "PATH", "HOROVOD_CONTROLLER=mpi"} <= set(forwarded)


def check_resources(case: Case, part: dict[str, Any]) -> None:
    wanted = DEFAULT_RESOURCES | ({"nvidia.com/gpu": "4"} if case.gpus else {})
    assert part["resources"] == {"requests": wanted, "limits": wanted}


def check_valid(thing: dict[str, Any], *versions: str) -> None:
    """Validate with Kubernetes' own schemas, where they are installed."""
    needed("kubernetes_validate")
    import kubernetes_validate

    for version in versions:
        assert kubernetes_validate.validate(thing, version, strict=True) == version


def pod_script(text: str, **variables: str) -> str:
    """Script for the shell of a pod, with these variables of the pod."""
    *_, job = objects(text)
    shell, flag = container(job["spec"]["template"])["command"]
    assert (shell, flag) == ("/bin/bash", "-c")
    (script,) = container(job["spec"]["template"])["args"]
    return expanded(script, variables)


def stand_in(folder: Path, script: str) -> dict[str, str]:
    """Write a `paceline` with this script; return the environment of pod 0."""
    (folder / "paceline").write_text(script)
    (folder / "paceline").chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin", "JOB_COMPLETION_INDEX": "0"}


@table("kubernetes", kind="job")
def test_job_has_a_pod_for_every_node(case: Case, tmp_path: Path) -> None:
    service, job = objects(case.text())
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    assert (spec["completions"], spec["parallelism"], spec["completionMode"]) == (case.nodes, case.nodes, "Indexed")
    assert (spec["backoffLimit"], spec["activeDeadlineSeconds"]) == (0, 95400)
    assert service["metadata"]["name"] == pod["subdomain"] == job["metadata"]["name"] == "digits"
    assert service["spec"]["selector"] == {"job-name": "digits"}
    check_resources(case, container(spec["template"]))
    check_variables(container(spec["template"])["env"])
    for thing in (service, job):
        check_valid(thing, OLDEST, NEWEST)
    (tmp_path / "pod.sh").write_text("#!/bin/bash\n" + pod_script(case.text()))
    shellcheck(tmp_path / "pod.sh")


@table("kubernetes", kind="job")
def test_pods_start_every_rank(case: Case, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    environment = stand_in(tmp_path, RECORDER.format(python=sys.executable, calls=calls, code=0))
    for pod in {0, case.nodes - 1}:
        index = {"JOB_COMPLETION_INDEX": str(pod)}
        script = pod_script(case.text(), **index, HOME="/wrong", rank="wrong")
        subprocess.run(["/bin/bash", "-c", script], env=environment | index, check=True, timeout=60)
        made = [json.loads(line)["words"] for line in calls.read_text().splitlines()]
        calls.unlink()
        ranks = range(pod * RANKS_PER_NODE, (pod + 1) * RANKS_PER_NODE)
        assert sorted(made, key=lambda words: int(words[3])) == [
            [
                *f"paceline rank --rank {rank} --size {case.ranks} --rendezvous digits-0.digits:29400 --".split(),
                *COMMAND,
            ]
            for rank in ranks
        ]


def test_failure_of_a_rank_is_the_pods(tmp_path: Path) -> None:
    script = pod_script(printed("kubernetes", "--image", "a", "--ranks-per-node", "3", "x"))
    environment = stand_in(tmp_path, '#!/bin/sh\n[ "$3" = 1 ] && exit 7\nsleep 0.2\n')
    done = subprocess.run(["/bin/bash", "-c", script], env=environment, timeout=60)
    assert done.returncode == 7


def test_pod_that_is_asked_to_end_asks_its_ranks(tmp_path: Path) -> None:
    script = pod_script(printed("kubernetes", "--image", "a", "--ranks-per-node", "2", "x"))
    log = tmp_path / "log"
    begun = f"trap 'echo ended >>{log}; exit 143' TERM\necho begun >>{log}\n"
    script_of_a_rank = f"#!/bin/bash\n{begun}for ((n = 0; n < 600; n++)); do sleep 0.1; done\n"
    environment = stand_in(tmp_path, script_of_a_rank)
    pod = subprocess.Popen(["/bin/bash", "-c", script], env=environment, start_new_session=True)
    while not log.exists() or log.read_text().count("begun") < 2:
        time.sleep(0.01)
    pod.terminate()
    assert pod.wait(timeout=60) == 143
    assert log.read_text().count("ended") == 2


@pytest.mark.parametrize("kind", ["mpijob", "trainjob"])
def test_mpirun_waits_for_the_name_of_its_pod(kind: str, tmp_path: Path) -> None:
    case = next(case for case in cases("kubernetes", kind=kind) if case.nodes == 2)
    *_, job = objects(case.text())
    if kind == "mpijob":
        words = container(job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"])["command"]
    else:
        words = job["spec"]["trainer"]["command"]
    known = tmp_path / "known"
    programs = {
        "getent": f'[ "$1 $2" = "hosts $(uname -n)" ] && [ -e {known} ]',
        "sleep": f"touch {known}",
        "mpirun": f'[ -e {known} ] && echo "mpirun $*"',
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        [expanded(word, {}) for word in words],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stdout == f"mpirun -np {case.ranks} --map-by slot --bind-to none\n", done.stderr


def test_pods_on_the_network_of_their_nodes_find_names() -> None:
    _, job = objects(printed("kubernetes", "--image", "a", "--host-network", "x"))
    pod = job["spec"]["template"]["spec"]
    assert (pod["hostNetwork"], pod["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    check_valid(job, OLDEST, NEWEST)
    refused = invoke("kubernetes", "--kind", "mpijob", "--image", "a", "--host-network", "x")
    assert refused.exit_code == 2 and "port 2222" in refused.output


@pytest.fixture(scope="module")
def mpijob_validator() -> Any:
    needed("jsonschema")
    import jsonschema

    return jsonschema.Draft202012Validator(mpijob_schema())


@table("kubernetes", kind="mpijob")
def test_mpijob_is_valid(case: Case, mpijob_validator: Any) -> None:
    (job,) = objects(case.text())
    mpijob_validator.validate(job)


@table("kubernetes", kind="mpijob")
def test_mpijob_has_the_documented_fields(case: Case) -> None:
    (job,) = objects(case.text())
    assert (job["apiVersion"], job["kind"], sorted(job)) == (
        "kubeflow.org/v2beta1", "MPIJob", ["apiVersion", "kind", "metadata", "spec"],
    )  # fmt: skip
    spec = job["spec"]
    assert set(spec) == {
        "slotsPerWorker", "mpiImplementation", "sshAuthMountPath", "launcherCreationPolicy", "runPolicy",
        "mpiReplicaSpecs",
    }  # fmt: skip
    assert (spec["slotsPerWorker"], spec["launcherCreationPolicy"]) == (RANKS_PER_NODE, "WaitForWorkersReady")
    assert spec["runPolicy"] == {"cleanPodPolicy": "Running", "backoffLimit": 0, "activeDeadlineSeconds": 95400}
    launcher, worker = spec["mpiReplicaSpecs"]["Launcher"], spec["mpiReplicaSpecs"]["Worker"]
    assert (launcher["replicas"], worker["replicas"]) == (1, case.nodes)
    check_resources(case, container(worker["template"]))
    starter = container(launcher["template"])
    check_mpirun(case, starter["command"] + starter["args"])
    check_variables(starter["env"])
    for template in (launcher["template"], worker["template"]):
        check_valid({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": template["spec"]}, NEWEST)


@table("kubernetes", kind="trainjob")
def test_trainjob_starts_every_rank_on_its_nodes(case: Case) -> None:
    runtime, job = objects(case.text())
    assert job["spec"]["runtimeRef"]["kind"] == runtime["kind"] == "TrainingRuntime"
    assert job["spec"]["runtimeRef"]["name"] == runtime["metadata"]["name"]
    trainer, policy = job["spec"]["trainer"], runtime["spec"]["mlPolicy"]
    assert (trainer["numNodes"], trainer["numProcPerNode"]) == (case.nodes, RANKS_PER_NODE)
    # The runtime's number counts launchers, because they carry the label of the trainer.
    assert policy["numNodes"] == 1
    assert policy["mpi"] == {
        "numProcPerNode": 4, "mpiImplementation": "OpenMPI", "sshAuthMountPath": "/home/mpiuser/.ssh",
        "runLauncherAsNode": False,
    }  # fmt: skip
    check_mpirun(case, trainer["command"] + trainer["args"])
    check_variables(trainer["env"])
    node, launcher = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    check_resources(case, container(node["template"]["spec"]["template"]))
    assert "metadata" not in node["template"], "what has the label gets the TrainJob's command"
    assert launcher["template"]["metadata"]["labels"] == {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    assert container(launcher["template"]["spec"]["template"])["name"] == "node", "others get no keys"
    needed("kubeflow_trainer_api")
    for thing in (runtime, job):
        kubeflow(thing)


@table("kubernetes")
def test_namespace_stands_in_every_object(case: Case) -> None:
    words = case.words()
    for thing in objects(printed(*words[:1], "--namespace", "team", *words[1:])):
        assert thing["metadata"]["namespace"] == "team"
