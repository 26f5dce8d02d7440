"""Docker: a Dockerfile with Paceline in it, and a compose file that runs ranks of it on one machine."""

from __future__ import annotations

import click

from paceline.launch.templates.fill import fill
from paceline.launch.templates.job import Job
from paceline.launch.templates.quoting import compose, dockerfile, yaml, yaml_list
from paceline.launch.templates.rank_call import RENDEZVOUS_PORT
from paceline.launch.templates.scheduler import Given, Kind, Scheduler

_BUILDS_ONLY = ("an image is built once and says nothing about jobs", "Say it where the image is run, for example with"
                " `paceline template kubernetes`.")  # fmt: skip
_NO_LIMIT = ("Docker has no limit of time", "Write `timeout 90m` before the command.")
_SETUP = ("a container begins in its image", "Do it in the image: `--kind image` writes a Dockerfile to start from.")
_ONE_MACHINE = (
    "Docker runs all containers on one machine",
    "Use --ranks-per-node alone, or `paceline template kubernetes` for several machines.",
)

COMPOSE = Kind(
    "compose",
    "compose.yaml",
    "a compose file: all ranks on one machine, each in its container",
    cannot={
        "time": _NO_LIMIT,
        "setup": _SETUP,
        "framework": ("it starts an image that is there", "Choose frameworks with --kind image, which builds one."),
        "mpi": ("its ranks are started by `paceline rank`, which needs no MPI", "Leave --mpi out."),
        "nodes": _ONE_MACHINE,
    },
    needs={"image": "Build one first: `paceline template docker --kind image -o Dockerfile`."},
)
IMAGE = Kind(
    "image",
    "Dockerfile",
    "a Dockerfile that builds Horovod with `paceline horovod install`",
    needs_command=False,
    cannot={
        "image": ("it makes an image", "Name the image when you build it: `docker build -t NAME .`."),
        **dict.fromkeys(("nodes", "ranks-per-node", "cores", "memory", "time", "name"), _BUILDS_ONLY),
        "setup": ("it has RUN lines for that", "Write the file without --setup and add a RUN line where it says so."),
    },
)


def _values(job: Job, given: Given, kind: Kind) -> dict[str, object]:
    return _image(job, given) if kind is IMAGE else _compose(job)


def _image(job: Job, given: Given) -> dict[str, object]:
    frameworks = given["framework"] or ("torch",)
    return {
        "gpus": job.gpus,
        "cpu_only": not job.gpus,
        "mpi": given["mpi"],
        "extras": ",".join(frameworks),
        "install_flags": " --mpi" if given["mpi"] else "",
        "env": [f"ENV {name}={dockerfile(value)}" for name, value in job.variables.items()],
        "command": f"CMD [{', '.join(yaml(word) for word in job.command)}]" if job.command else "",
    }


def _compose(job: Job) -> dict[str, object]:
    share = job.gpus // job.ranks_per_node
    shared = {
        "name": job.name,
        "image": yaml(compose(job.image or "")),
        "cores": job.cores,
        "memory": job.memory_mib // job.ranks if job.memory_mib else None,
        "env": [f"{name}: {yaml(compose(value))}" for name, value in job.variables.items()],
        "size": job.ranks,
        "rendezvous": f"rank0:{RENDEZVOUS_PORT}",
        "words": yaml_list([compose(word) for word in job.command]),
    }
    services = []
    for rank in range(job.ranks):
        gpus = ", ".join(f'"{gpu}"' for gpu in range(rank * share, (rank + 1) * share))
        services.append(fill(SCHEDULER.folder, "service.yaml", {**shared, "rank": str(rank), "gpus": gpus}))
    return {**shared, "gpus": job.gpus, "services": "".join(services).rstrip()}


SCHEDULER = Scheduler(
    name="docker",
    summary="a Dockerfile, and a compose file for ranks on one machine",
    file="compose.yaml",
    chooser="kind",
    kinds=(COMPOSE, IMAGE),
    options=(
        lambda: click.Option(
            ["--framework"],
            multiple=True,
            type=click.Choice(["torch", "tensorflow"]),
            help="Framework to put into the image; may be repeated (default: torch).",
        ),
        lambda: click.Option(
            ["--mpi"],
            is_flag=True,
            default=None,
            help="Put Open MPI and an sshd into the image, as MPIJob and TrainJob want them.",
        ),
    ),
    values=_values,
)
