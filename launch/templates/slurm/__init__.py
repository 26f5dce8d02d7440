"""Slurm: a batch script for sbatch."""

from __future__ import annotations

from pathlib import Path

import click

from paceline.launch.templates.job import Job
from paceline.launch.templates.quantities import clock
from paceline.launch.templates.quoting import exports, shell
from paceline.launch.templates.rank_call import told_by_scheduler
from paceline.launch.templates.scheduler import Given, Kind, Scheduler, container, word_option

RANK = Kind("rank", "rank.sh", "srun starts every rank with `paceline rank`, without ssh")
HOROVODRUN = Kind(
    "horovodrun",
    "horovodrun.sh",
    "horovodrun starts the ranks over ssh, which must work between machines without a password",
    cannot={
        "image": (
            "horovodrun starts ranks over ssh, outside of any container",
            "Use --start rank, which runs every rank in the image, or leave --image out.",
        )
    },
)


def _values(job: Job, given: Given, kind: Kind) -> dict[str, object]:
    return {
        "name": job.name,
        "nodes": job.nodes,
        "ranks": job.ranks,
        "ranks_per_node": job.ranks_per_node,
        "cores": job.cores,
        "gpus": job.gpus,
        "time": clock(job.time_s, days=True) if job.time_s else None,
        "memory_mib": job.memory_mib,
        "partition": given["partition"],
        "account": given["account"],
        "restarts": given["restarts"],
        "setup": job.setup,
        "exports": exports(job.variables),
        "command": shell(job.command if kind is HOROVODRUN else [*container(job), *told_by_scheduler(job.command)]),
    }


SCHEDULER = Scheduler(
    name="slurm",
    summary="a batch script for Slurm",
    folder=Path(__file__).parent,
    file="job.sh",
    chooser="start",
    kinds=(RANK, HOROVODRUN),
    options=(
        word_option("partition", "Partition (queue) to wait in."),
        word_option("account", "Account that the time is charged to."),
        lambda: click.Option(
            ["--restarts"], type=click.IntRange(1), help="How often a job that failed is put back into the queue"
            " (default: never)."
        ),
    ),
    values=_values,
)  # fmt: skip
