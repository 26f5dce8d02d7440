"""Generator of docs/reference/options.md from the declarations of options.

python -m paceline.options_page > docs/reference/options.md
"""

from __future__ import annotations

from paceline import renamed
from paceline.common_settings import HOROVODS
from paceline.config import OPTIONS
from paceline.debug_values import DEBUG_VALUES, NAME
from paceline.option import PREFIX, Option, whether_given


def _value(option: Option) -> str:
    return f"{option.kind} ({option.unit})" if option.unit else option.kind


def _ranks(option: Option) -> str:
    if option.name == NAME:
        return "see below"
    return "any" if option.shared is None else "given or not" if option.shared is whether_given else "equal"


def options_table() -> str:
    """Return the table of all options."""
    lines = [
        "| variable and flag | value, default | on all ranks | meaning |",
        "| --- | --- | --- | --- |",
    ]
    for option in OPTIONS:
        flags = "<br>".join(f"`{name}`" for name in (option.variable, *option.flags))
        lines.append(f"| {flags} | {_value(option)}<br>{option.default_text} | {_ranks(option)} | {option.meaning} |")
    return "\n".join(lines)


def debug_table() -> str:
    """Return the table of the values of PACELINE_DEBUG."""
    lines = ["| name | value | default | on all ranks | meaning |", "| --- | --- | --- | --- | --- |"]
    lines += [
        f"| `{one.name}` | {_value(one)} | {one.default_text} | {_ranks(one)} | {one.meaning} |" for one in DEBUG_VALUES
    ]
    return "\n".join(lines)


def renamed_table() -> str:
    """Return the table of names of 0.1 and their replacements."""
    rows = [(f"{PREFIX}{old.upper()}", f"{PREFIX}{new.upper()}") for old, new in renamed.OPTIONS.items()]
    rows += [(f"{PREFIX}{old.upper()}", new) for old, new in renamed.ARGUMENTS.items()]
    rows += [(f"{PREFIX}{one.name.upper()}", f"{PREFIX}{NAME.upper()}={one.name}=VALUE") for one in DEBUG_VALUES]
    rows += [
        (f"{name}={old}", f"{name}={new}") for name, changed in renamed.VALUES.items() for old, new in changed.items()
    ]
    rows += [
        (f"hvd.{owner}({old}=...)", f"hvd.{owner}({new}=...)")
        for owner, changed in renamed.KEYWORDS.items()
        for old, new in changed.items()
    ]
    rows += list(renamed.COMMANDS.items())
    return "\n".join(["| 0.1 | now |", "| --- | --- |", *(f"| `{old}` | `{new}` |" for old, new in rows)])


def options_page() -> str:
    """Return the whole page docs/reference/options.md."""
    horovods = "\n".join(f"| `{one.name}` | {one.default or 'by build'} | {one.why} |" for one in HOROVODS)
    return f"""# Options

A flag overrides its variable, the variable overrides the default. Flags belong to `paceline run`, `--cache-dir` to
`paceline horovod`. `paceline doctor --options` lists the values in force. An unknown `PACELINE_*` variable and a value
that does not parse are refused by every command and by `hvd.init()`.

{options_table()}

Settings of an exchange that have no variable are arguments in the script: `hvd.Pipelined(annealing_steps=100)`,
`hvd.Local(outer_momentum=0.9)`; see [pipelined.md](../methods/pipelined.md) and [local.md](../methods/local.md).

Every option is declared once, in `plugin/config.py` or with its exchange. `python -m paceline.options_page` prints this
page, and a test compares them.

## Settings that must be equal on all ranks

`hvd.init()` compares the settings of all ranks, in every world of an elastic job, too. Where they differ, it raises an
error on all ranks that names each variable, its value on each rank and how to export it:

| launcher | how it exports a variable |
| --- | --- |
| `paceline run`, horovodrun | by itself, all of them |
| mpirun (Open MPI) | `-x NAME` for each |
| mpiexec (MPICH) | `-genvlist NAME,...` or `-genvall` |
| srun | `--export=ALL` (its default, unless SLURM_EXPORT_ENV says otherwise) or `--export=ALL,NAME` |
| ssh | `ssh HOST env NAME=VALUE COMMAND` |

Compared are the options marked "equal" above ("given or not": whether there is a value), the version of Paceline, the
digest of its changes of Horovod, and these variables of Horovod:

| variable | default | why it must be equal |
| --- | --- | --- |
{horovods}

Other variables of Horovod may differ: HOROVOD_CYCLE_TIME and HOROVOD_THREAD_AFFINITY change a rank's speed alone, the
HOROVOD_STALL_ and HOROVOD_TIMELINE variables count on rank 0, and HOROVOD_GLOO_IFACE belongs to the host.

## Values for tests and support

`PACELINE_DEBUG=name=value,name=value`, or `--debug` of `paceline run`, sets internal constants. Training does not need
them: set them when a test or a maintainer asks for it.

{debug_table()}

## Names of version 0.1

Paceline refuses these names and shows the new one. Saved states and network files of 0.1 load unchanged.

{renamed_table()}
"""


if __name__ == "__main__":
    print(options_page(), end="")
