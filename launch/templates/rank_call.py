"""Calls of `paceline rank` in job files; its flags appear only here."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.launch.templates.job import Job
from paceline.launch.templates.quoting import shell

# Free by construction: on a network of the job's own.
RENDEZVOUS_PORT = 29400


def container(job: Job) -> list[str]:
    """Prefix of a command that runs in the job's image, on clusters without native containers."""
    if job.image is None:
        return []
    is_file = job.image.endswith(".sif") or "://" in job.image
    image = job.image if is_file else f"docker://{job.image}"
    return ["apptainer", "exec", *(["--nv"] if job.gpus else []), image]


def identified_by_scheduler(command: Sequence[str]) -> list[str]:
    """Run the user's command as a rank whose number comes from the scheduler's variables."""
    return ["paceline", "rank", "--", *command]


def by_arguments(job: Job) -> str:
    """Run the job's command as a rank; the script's two arguments are its number and rank 0's HOST:PORT."""
    return numbered(shell(job.command), '"$1"', job.ranks, '"$2"', container(job))


def numbered(command: str, rank: str, size: int, rendezvous: str, before: Sequence[str] = ()) -> str:
    """Run the user's command as a rank with an explicit number, for schedulers without task numbers; shell syntax.

    `command`, `rank` and `rendezvous` (HOST:PORT of rank 0) are quoted already, so that the last two may be variables.
    `before`: words in front, such as those that start a container.
    """
    return f"{shell([*before, 'paceline', 'rank'])} --rank {rank} --size {size} --rendezvous {rendezvous} -- {command}"
