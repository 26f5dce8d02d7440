"""Benchmark codecs: whether training with gradients in fewer bytes ends where training without codec does."""

from __future__ import annotations

from dataclasses import dataclass

import click

from paceline.errors import UserError
from paceline.examples.benchmarks.commands.limits import check_time_limit
from paceline.examples.benchmarks.commands.options import MOST_RANKS, check_installed, named_words
from paceline.examples.benchmarks.commands.showing import show
from paceline.examples.benchmarks.harness import codec_training
from paceline.launch import console
from paceline.registry.codecs import CODECS
from paceline.registry.collectives import COLLECTIVES, HOROVODS

MOST_SEEDS = 100
OWN = tuple(name for name in COLLECTIVES if name != HOROVODS)  # Horovod's own takes no codec
CODINGS = tuple(CODECS) + tuple(f"{name}{codec_training.PLAIN}" for name in CODECS if name != codec_training.EXACT)


@dataclass(frozen=True)
class CodecsRequest:
    """What to compare, as the options of the command say it."""

    models: tuple[str, ...]
    codings: tuple[str, ...]
    seeds: int
    ranks: int
    collective: str
    steps: int | None
    time_limit_s: float

    def check(self) -> None:
        """Raise UserError for what cannot be used."""
        for option, names, known in (
            ("--model", self.models, codec_training.MODELS),
            ("--codecs", self.codings, CODINGS),
        ):
            unknown = [name for name in names if name not in known]
            if unknown or not names:
                found = unknown[0] if unknown else ""
                raise UserError(f"{option} {found!r} cannot be used.", f"Give some of {', '.join(known)}.")
        if not 2 <= self.ranks <= MOST_RANKS:
            raise UserError(f"--ranks {self.ranks} cannot be used.", f"Give 2 to {MOST_RANKS}: one rank sends nothing.")
        if not 1 <= self.seeds <= MOST_SEEDS:
            raise UserError(f"--seeds {self.seeds} cannot be used.", f"Give 1 to {MOST_SEEDS}.")
        if self.steps is not None and self.steps < 1:
            raise UserError(f"--steps {self.steps} cannot be used.", "Give at least 1, or leave it out.")
        check_time_limit(self.time_limit_s)

    @property
    def command(self) -> str:
        """The command line that asks for this."""
        words = (
            f"python -m examples.benchmarks codecs --model {','.join(self.models)} --codecs {','.join(self.codings)}"
        )
        words += f" --seeds {self.seeds} --ranks {self.ranks} --collective {self.collective}"
        words += "" if self.steps is None else f" --steps {self.steps}"
        return f"{words} --time-limit-s {self.time_limit_s:g}"


@click.command("codecs")
@click.option("--model", "models", default=",".join(codec_training.MODELS), show_default=True, help="What to train.")
@click.option(
    "--codecs",
    "codings",
    default=",".join(codec_training.CODINGS),
    show_default=True,
    help="Codecs; with _plain behind its name, one without error feedback.",
)
@click.option("--seeds", default=5, show_default=True, help="Runs of each: other first weights and batches.")
@click.option("--ranks", default=2, show_default=True, help="Ranks, all on this machine.")
@click.option("--collective", type=click.Choice(OWN), default="direct", show_default=True, help="How gradients travel.")
@click.option("--steps", type=int, help="Steps of each run. [default: 184; 300 of characters]")
@click.option("--time-limit-s", default=3600.0, show_default=True, help="Seconds for each model, at most.")
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON for each model in place of tables.")
def codecs_command(
    models: str,
    codings: str,
    seeds: int,
    ranks: int,
    collective: str,
    steps: int | None,
    time_limit_s: float,
    as_json: bool,
) -> None:
    """Compare where training ends with codecs, with and without error feedback, and where without.

    digits and characters are the networks of these examples, trained with Adam. uneven is hard for codecs: a linear
    classifier by gradient descent until it changes no more, each rank has other digits.
    """
    request = CodecsRequest(named_words(models), named_words(codings), seeds, ranks, collective, steps, time_limit_s)
    request.check()
    check_installed()
    from paceline.examples.benchmarks.harness import report
    from paceline.examples.benchmarks.harness.codec_table import as_table

    with console.err().status("") as status:
        for model in request.models:
            about = report.machine()
            found = codec_training.compare(
                model, request.codings, seeds, ranks, collective, steps, status.update, time_limit_s
            )
            show({**found, "machine": about, "command": request.command}, as_table, as_json)
