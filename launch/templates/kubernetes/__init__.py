"""Kubernetes: objects for kubectl, with and without Kubeflow's operators."""

from __future__ import annotations

import click

from paceline.launch.templates.job import Job
from paceline.launch.templates.quoting import kubernetes, shell, yaml, yaml_list
from paceline.launch.templates.rank_call import RENDEZVOUS_PORT, numbered
from paceline.launch.templates.scheduler import Given, Kind, Scheduler, word_option

_CANNOT = {
    "setup": (
        "a pod begins in its image",
        "Do it in the image: `paceline template docker --kind image` writes a Dockerfile to start from.",
    )
}
_NEEDS = {"image": "Pods need an image with Paceline and your script, for example --image registry/train:1."}
_SSHD = {
    "host-network": (
        "its sshd would take port 2222 of the node, and its name would be the node's",
        "Use --kind job, which needs no ssh.",
    )
}
JOB = Kind("job", "job.yaml", "an Indexed Job and a headless Service; needs no operator and no ssh", _CANNOT, _NEEDS)
MPIJOB = Kind(
    "mpijob",
    "mpijob.yaml",
    "Kubeflow's MPIJob v2beta1; needs the MPI operator, and MPI and sshd in the image",
    {**_CANNOT, **_SSHD},
    _NEEDS,
)
TRAINJOB = Kind(
    "trainjob",
    "trainjob.yaml",
    "a TrainJob of Kubeflow Trainer 2 and its MPI runtime; needs Trainer, and MPI and sshd in the image",
    {**_CANNOT, **_SSHD},
    _NEEDS,
)

# Workers connect to the launcher by its name, which the cluster's DNS may learn after the pod has started.
_WAIT_FOR_NAME = (
    'n=0; until getent hosts "$(uname -n)" >/dev/null; do n=$((n + 1)); '
    '[ "$n" -lt 60 ] || { echo "The name $(uname -n) of this pod is unknown after 60 s." >&2; exit 1; }; '
    'sleep 1; done; exec "$@"'
)


def _values(job: Job, given: Given, kind: Kind) -> dict[str, object]:
    rendezvous = f"{job.name}-0.{job.name}:{RENDEZVOUS_PORT}"
    forwarded = [word for name in job.variables for word in ("-x", name)]
    mpirun = ["/bin/sh", "-c", kubernetes(_WAIT_FOR_NAME), "sh"]
    mpirun += ["mpirun", "-np", str(job.ranks), "--map-by", "slot", "--bind-to", "none"]
    resources = [f"cpu: {yaml(str(job.cores_per_node))}"]
    resources += [f"memory: {job.memory_mib}Mi"] if job.memory_mib else []
    resources += [f"nvidia.com/gpu: {yaml(str(job.gpus))}"] if job.gpus else []
    return {
        "namespace": given["namespace"],
        "host_network": given["host_network"],
        "image": yaml(job.image or ""),
        "resources": resources,
        "env": [
            line
            for name, value in job.variables.items()
            for line in (f"- name: {name}", f"  value: {yaml(kubernetes(value))}")
        ],
        "port": RENDEZVOUS_PORT,
        # Only the user's words may contain special characters of Kubernetes.
        "rank_command": numbered(kubernetes(shell(job.command)), '"$rank"', job.ranks, rendezvous),
        "mpirun": yaml_list(mpirun),
        "mpirun_arguments": yaml_list([*forwarded, *(kubernetes(word) for word in job.command)]),
    }


_OPTIONS = (
    word_option("namespace", "Namespace of the objects (default: the one that kubectl uses)."),
    lambda: click.Option(
        ["--host-network"], is_flag=True, default=None, help="Let pods use the network of their nodes, as RDMA needs."
    ),
)
_KINDS = (JOB, MPIJOB, TRAINJOB)
SCHEDULER = Scheduler("kubernetes", "objects for Kubernetes", _KINDS, _OPTIONS, _values, "job.yaml", "kind")
