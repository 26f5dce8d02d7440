"""What a scheduler declares: its kinds of files, its own options, and what a kind cannot express."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from paceline.errors import UserError
from paceline.launch.templates.fill import fill
from paceline.launch.templates.job import Job
from paceline.launch.templates.quoting import exports

Given = Mapping[str, Any]


@dataclass(frozen=True)
class Kind:
    """One kind of file. `cannot` and `needs` give for each flag (without dashes) the reason and what to do."""

    name: str
    template: str
    meaning: str
    cannot: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    needs: Mapping[str, str] = field(default_factory=dict)
    needs_command: bool = True


@dataclass(frozen=True)
class Scheduler:
    """One scheduler.

    `values` gives what the templates in `folder` name beside what is common to all, from the job, the scheduler's own
    options and the kind. `file` is an example of a name. `chooser` is the flag that chooses among `kinds`, the first of
    which is the default.
    """

    name: str
    summary: str
    kinds: tuple[Kind, ...]
    options: tuple[Callable[[], click.Option], ...]
    values: Callable[[Job, Given, Kind], Mapping[str, object]]
    file: str = "job.sh"
    chooser: str = "start"

    @property
    def folder(self) -> Path:
        """Of its templates."""
        return Path(__file__).parent / self.name

    def kind(self, name: str) -> Kind:
        """The kind of that name."""
        return next(kind for kind in self.kinds if kind.name == name)

    def render(self, job: Job, given: Given, kind: Kind, made_by: str) -> str:
        """The whole file."""
        return fill(self.folder, kind.template, {"made_by": made_by, **_common(job), **self.values(job, given, kind)})


def _common(job: Job) -> dict[str, object]:
    """What templates of every scheduler may name."""
    return {
        "name": job.name,
        "nodes": job.nodes,
        "ranks": job.ranks,
        "ranks_per_node": job.ranks_per_node,
        "cores": job.cores,
        "cores_per_node": job.cores_per_node,
        "gpus": job.gpus,
        "time_s": job.time_s,
        "memory_mib": job.memory_mib,
        "setup": job.setup,
        "exports": exports(job.variables),
    }


def refuse(scheduler: Scheduler, kind: Kind, given: Given) -> None:
    """Raise UserError for a flag that the kind cannot express, and for what it needs and is not given."""
    chosen = f"paceline template {scheduler.name} --{scheduler.chooser} {kind.name}"
    for flag, (reason, remedy) in kind.cannot.items():
        if _is_given(given.get(flag.replace("-", "_"))):
            raise UserError(f"`{chosen}` has no place for --{flag}: {reason}.", remedy)
    for flag, remedy in kind.needs.items():
        if not _is_given(given.get(flag.replace("-", "_"))):
            raise UserError(f"`{chosen}` needs --{flag}.", remedy)
    if kind.needs_command and not given["command"]:
        raise UserError(
            "There is no command for the ranks to run.",
            f"Put it last: `paceline template {scheduler.name} -o {scheduler.file} python train.py`.",
        )


def _is_given(value: Any) -> bool:
    return value not in (None, ())


def word_option(flag: str, meaning: str) -> Callable[[], click.Option]:
    """An option whose value goes into the file as it is, and may therefore have no signs with a meaning there."""

    def check(_: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
        if value is not None and (not value or any(not (sign.isalnum() or sign in "._-+:/@,=%") for sign in value)):
            raise UserError(
                f"--{flag} {value!r} cannot be used: it has signs other than letters, digits and ._-+:/@,=%.",
                f"--{flag}: {meaning[0].lower()}{meaning[1:]}",
            )
        return value

    return lambda: click.Option([f"--{flag}"], help=meaning, callback=check)
