"""Slurm: a batch script for sbatch."""

from __future__ import annotations

import shlex

import click

from paceline.launch.quantities import clock
from paceline.launch.templates.job import Job
from paceline.launch.templates.quoting import shell
from paceline.launch.templates.rank_call import container, identified_by_scheduler
from paceline.launch.templates.scheduler import Given, Kind, Scheduler, word_option

_NO_IMAGE = (
    "horovodrun starts ranks over ssh, outside of any container",
    "Use --start rank, which runs every rank in the image, or leave --image out.",
)
_FIXED_SIZE = ("its number of ranks is fixed", "Use --start elastic, or leave --min-nodes out.")

RANK = Kind(
    "rank",
    "rank.sh",
    "srun starts every rank with `paceline rank`, without ssh",
    cannot={"min-nodes": _FIXED_SIZE},
)
HOROVODRUN = Kind(
    "horovodrun",
    "horovodrun.sh",
    "horovodrun starts the ranks over ssh, which must work between machines without a password",
    cannot={"image": _NO_IMAGE, "min-nodes": _FIXED_SIZE},
)
ELASTIC = Kind(
    "elastic",
    "elastic.sh",
    "the same, with machines that come and go while the script trains under hvd.elastic.run",
    cannot={
        "image": _NO_IMAGE,
        "restarts": ("it goes on with the machines that are left", "Leave --restarts out, or use --start rank."),
    },
)


def _values(job: Job, given: Given, kind: Kind) -> dict[str, object]:
    return {
        "time": clock(job.time_s, days=True) if job.time_s else None,
        "partition": given["partition"],
        "account": given["account"],
        "restarts": given["restarts"],
        "elastic": kind is ELASTIC,
        "least_ranks": (given["min_nodes"] or 1) * job.ranks_per_node,
        "shape": shlex.join(_shape(job, given)),
        "command": shell(job.command if kind is not RANK else [*container(job), *identified_by_scheduler(job.command)]),
    }


def _shape(job: Job, given: Given) -> list[str]:
    """Options of a one-machine job with machines like this job's."""
    asked = {
        "nodes": 1,
        "ntasks-per-node": job.ranks_per_node,
        "cpus-per-task": job.cores,
        "gpus-per-node": job.gpus,
        "mem": f"{job.memory_mib}M" if job.memory_mib else None,
        "time": clock(job.time_s, days=True) if job.time_s else None,
        "partition": given["partition"],
        "account": given["account"],
    }
    return [f"--{flag}={value}" for flag, value in asked.items() if value]


_OPTIONS = (
    word_option("partition", "Partition (queue) to wait in."),
    word_option("account", "Account that the time is charged to."),
    lambda: click.Option(
        ["--restarts"], type=click.IntRange(1), help="How often a job that failed is put back into the queue"
        " (default: never)."
    ),
    lambda: click.Option(
        ["--min-nodes"], type=click.IntRange(1), help="With --start elastic, on how many machines training may go"
        " on (default: 1)."
    ),
)  # fmt: skip
SCHEDULER = Scheduler("slurm", "a batch script for Slurm", (RANK, HOROVODRUN, ELASTIC), _OPTIONS, _values)
