"""Job description common to all schedulers, with checks that do not depend on the scheduler."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline import config
from paceline.errors import UserError

# Object names of Kubernetes are the most restricted; every other scheduler accepts them. Pods of a Job get a number as
# suffix.
_NAME = re.compile(r"[a-z]([a-z0-9-]{0,50}[a-z0-9])?")
_IMAGE = re.compile(r"[A-Za-z0-9._/~][A-Za-z0-9._/:@+~-]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Job:
    """One job. `cores`: of each rank. `gpus` and `memory_mib`: of each node. None: not requested.

    `variables`: environment of the ranks: the user's and Paceline's options.
    """

    name: str
    nodes: int
    ranks_per_node: int
    cores: int
    gpus: int
    time_s: int | None
    memory_mib: int | None
    image: str | None
    variables: Mapping[str, str]
    setup: tuple[str, ...]
    command: tuple[str, ...]

    @property
    def ranks(self) -> int:
        """Number of ranks in total."""
        return self.nodes * self.ranks_per_node

    @property
    def cores_per_node(self) -> int:
        """Number of cores for all ranks of a node."""
        return self.ranks_per_node * self.cores


def check(job: Job) -> None:
    """Raise UserError for jobs that no scheduler can run."""
    if not _NAME.fullmatch(job.name):
        raise UserError(
            f"--name {job.name} cannot be used: a name has small letters, digits and dashes, at most 52, and begins "
            "with a letter.",
            "Choose another --name.",
        )
    if job.gpus % job.ranks_per_node:
        raise UserError(
            f"{job.gpus} GPUs of a node cannot be shared out evenly among {job.ranks_per_node} ranks.",
            f"One GPU per rank is usual: --gpus {job.gpus} --ranks-per-node {job.gpus}.",
        )
    if job.image is not None and not _IMAGE.fullmatch(job.image):
        raise UserError(
            f"--image {job.image} is not the name of an image.",
            "For example: --image registry.example.org/train:1, or a file train.sif where Apptainer runs it.",
        )
    for words in (job.command, job.variables.values(), job.setup):
        for word in words:
            if any(not sign.isprintable() for sign in word):
                raise UserError(
                    f"{word!r} has a line break or another sign that cannot be printed; it would break the file apart.",
                    "Put it into a script, and name the script in the command.",
                )


def user_variables(pairs: Sequence[str]) -> dict[str, str]:
    """Parse NAME=VALUE pairs; raises UserError for other texts and for names of Paceline's options."""
    made: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not _VARIABLE.fullmatch(name):
            raise UserError(f"--env {pair} is not NAME=VALUE.", "For example: --env NCCL_DEBUG=INFO.")
        if name.startswith(config.PREFIX):
            raise UserError(
                f"--env {name} sets an option of Paceline, which is checked when it comes as a flag.",
                f"Write --{name.removeprefix(config.PREFIX).lower().replace('_', '-')} instead.",
            )
        made[name] = value
    return made
