"""Declaration of a scheduler: its kinds of files, its options, and features that a kind lacks."""

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
    """One kind of file. `cannot` and `needs`: for each flag (without dashes) the reason and the remedy."""

    name: str
    template: str
    meaning: str
    cannot: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    needs: Mapping[str, str] = field(default_factory=dict)
    needs_command: bool = True


@dataclass(frozen=True)
class Scheduler:
    """One scheduler.

    `values`: returns template variables of `folder`, in addition to the common ones, from the job, the scheduler's
    options and the kind. `file`: example of a file name. `chooser`: the flag that selects among `kinds`; the first is
    the default.
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
        """Folder of its templates."""
        return Path(__file__).parent / self.name

    def kind(self, name: str) -> Kind:
        """Return the kind of that name."""
        return next(kind for kind in self.kinds if kind.name == name)

    def render(self, job: Job, given: Given, kind: Kind, made_by: str) -> str:
        """Return the whole file."""
        return fill(self.folder, kind.template, {"made_by": made_by, **_common(job), **self.values(job, given, kind)})


def _common(job: Job) -> dict[str, object]:
    """Template variables common to all schedulers."""
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
    """Raise UserError for a flag that the kind does not support, and for a missing flag that it needs."""
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
    """Option whose value is copied into the file as it is, and therefore must not contain special characters."""

    def check(_: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
        if value is not None and (not value or any(not (sign.isalnum() or sign in "._-+:/@,=%") for sign in value)):
            raise UserError(
                f"--{flag} {value!r} cannot be used: it has signs other than letters, digits and ._-+:/@,=%.",
                f"--{flag}: {meaning[0].lower()}{meaning[1:]}",
            )
        return value

    return lambda: click.Option([f"--{flag}"], help=meaning, callback=check)
