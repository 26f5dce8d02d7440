"""Kubernetes: objects for kubectl, with and without Kubeflow's operators."""

from __future__ import annotations

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
JOB = Kind("job", "job.yaml", "an Indexed Job and a headless Service; needs no operator and no ssh", _CANNOT, _NEEDS)
MPIJOB = Kind(
    "mpijob",
    "mpijob.yaml",
    "Kubeflow's MPIJob v2beta1; needs the MPI operator, and MPI and sshd in the image",
    _CANNOT,
    _NEEDS,
)
TRAINJOB = Kind(
    "trainjob",
    "trainjob.yaml",
    "a TrainJob of Kubeflow Trainer 2 and its MPI runtime; needs Trainer, and MPI and sshd in the image",
    _CANNOT,
    _NEEDS,
)


def _values(job: Job, given: Given, kind: Kind) -> dict[str, object]:
    rendezvous = f"{job.name}-0.{job.name}:{RENDEZVOUS_PORT}"
    handed_on = [word for name in job.variables for word in ("-x", name)]
    mpirun = ["mpirun", "-np", str(job.ranks), "--map-by", "slot", "--bind-to", "none"]
    resources = [f"cpu: {yaml(str(job.cores_per_node))}"]
    resources += [f"memory: {job.memory_mib}Mi"] if job.memory_mib else []
    resources += [f"nvidia.com/gpu: {yaml(str(job.gpus))}"] if job.gpus else []
    return {
        "namespace": given["namespace"],
        "image": yaml(job.image or ""),
        "resources": resources,
        "env": [
            line
            for name, value in job.variables.items()
            for line in (f"- name: {name}", f"  value: {yaml(kubernetes(value))}")
        ],
        "port": RENDEZVOUS_PORT,
        # Only the user's words may have signs that Kubernetes takes for its own.
        "rank_command": numbered(kubernetes(shell(job.command)), '"$rank"', job.ranks, rendezvous),
        "mpirun": yaml_list(mpirun),
        "mpirun_arguments": yaml_list([*handed_on, *(kubernetes(word) for word in job.command)]),
    }


_OPTIONS = (word_option("namespace", "Namespace of the objects (default: the one that kubectl uses)."),)
_KINDS = (JOB, MPIJOB, TRAINJOB)
SCHEDULER = Scheduler("kubernetes", "objects for Kubernetes", _KINDS, _OPTIONS, _values, "job.yaml", "kind")
