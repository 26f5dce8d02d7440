"""`paceline rank`: started once per task by a scheduler, it makes the task one rank of the job."""

from __future__ import annotations

import os
import shlex
import socket
import sys
import threading
import time
from typing import Any

import click
from msgspec.structs import replace

from paceline import config
from paceline.errors import UserError
from paceline.failure import reports
from paceline.failure.reports import Failed
from paceline.launch import console, flags
from paceline.launch.environment import announce, environment, remark
from paceline.launch.failures.verdict import Verdict, exit_text
from paceline.launch.passing import GRACE_S, Command, Ended
from paceline.launch.rank import hub, identity, interfaces, member, rendezvous, schedulers, variables
from paceline.launch.rank.channel import Channel, Closed

WAIT_S = 300.0
STAY_S = 3600.0
# Time after our command failed for rank 0 to report which rank was first.
VERDICT_LIMIT_S = hub.SETTLE_S + hub.CAUSE_S + 5.0
# Time after a verdict for the other tasks to end before rank 0 leaves.
LEAVE_LIMIT_S = GRACE_S + 5.0
REPORT_EVERY_S = 60.0
SLICE_S = 0.1


@flags.with_options("run")
@click.command("rank", context_settings={"allow_interspersed_args": False})
@click.option(
    "--scheduler",
    type=click.Choice(schedulers.NAMES),
    metavar="NAME",
    help=f"Whose variables count: {', '.join(schedulers.NAMES)}. [default: found out]",
)
@click.option("--rank", type=int, help="This task's number, from 0. [default: the scheduler's]")
@click.option("--size", type=int, help="How many tasks there are. [default: the scheduler's]")
@click.option(
    "--rendezvous", default="", metavar="HOST[:PORT]", help="Where rank 0 listens. [default: by the scheduler's list]"
)
@click.option(
    "--wait", type=click.FloatRange(min=1), default=WAIT_S, show_default=True, metavar="SECONDS",
    help="How long to wait for the other tasks at the start.",
)  # fmt: skip
@click.option(
    "--stay", type=click.FloatRange(min=0), default=STAY_S, show_default=True, metavar="SECONDS",
    help="How long ranks may run on after rank 0 has ended.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Print the variables that the command would get, and end.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def rank_command(
    scheduler: str | None,
    rank: int | None,
    size: int | None,
    rendezvous: str,
    wait: float,
    stay: float,
    dry_run: bool,
    command: tuple[str, ...],
    **values: Any,
) -> None:
    r"""Make this task one rank: `srun -n 4 paceline rank --fusion optimal -- python train.py`.

    To be started once per task, by srun, mpirun, mpiexec, jsrun, blaunch, pbsdsh, torchrun or as an Indexed Job of
    Kubernetes. It reads from their variables which rank this is, finds rank 0, and runs COMMAND with what Horovod needs
    to use Gloo; no ssh, no MPI and no shared files. The exit code is COMMAND's; when one rank fails, all end with its
    code.
    """
    given = flags.texts(values)
    settings = config.read(flags=given)
    who = identity.find(os.environ, identity.Given(rank, size, rendezvous, scheduler or ""))
    options = flags.environment(given)
    if dry_run:
        remark(settings, starts=False)
        _show(who, options)
        return
    if not command:
        raise UserError(
            "There is no command for this rank to run.", "Put it last: `srun -n 4 paceline rank -- python train.py`."
        )
    environ = environment(settings, given)
    if who.rank == 0:
        announce(settings)
        for note in who.notes:
            console.note(note)
    sys.exit(_serve_and_run(who, wait, stay, command, environ) if who.rank == 0 else _run(who, wait, command, environ))


def _show(who: identity.Identity, options: dict[str, str]) -> None:
    """Print the variables in shell syntax; comments name their origin."""
    known, agreed = variables.known_before(who, os.environ)
    click.echo(f"# rank {who.rank} of {who.size} on {socket.gethostname()}, as {who.source} says")
    for note in who.notes:
        click.echo(f"# {note}")
    source = f" ({who.hosts_from})" if who.hosts_from else ""
    click.echo(f"# rank 0: {' or '.join(who.hosts)}{source}, port {who.port}; job: {who.job}")
    for name, value in {**known, **options}.items():
        click.echo(f"{name}={shlex.quote(value)}")
    click.echo(f"# agreed with the other tasks at the start: {', '.join(agreed)}")


def _serve_and_run(
    who: identity.Identity, wait: float, stay: float, command: tuple[str, ...], environ: dict[str, str]
) -> int:
    """Run rank 0: gather all tasks while running our own command, and stay until they have ended."""
    server = rendezvous.Rendezvous(console.note)
    centre = hub.Hub(who.size, who.job, wait, server.serve, console.note)
    centre.start(hub.bind(interfaces.to_listen_on(who.hosts), who.port, who.job))
    try:
        code = _run(who, wait, command, environ)
        return code or _stay(centre, stay)
    finally:
        if centre.verdict is not None:
            _see_them_end(centre)
        centre.stop()


def _stay(centre: hub.Hub, limit_s: float) -> int:
    """Wait until all other ranks have ended: they may end later, and Horovod's last messages need our server."""
    begin_s, reported, aborted = time.monotonic(), 1, False
    while (others := centre.running()) and centre.verdict is None:
        passed_s = time.monotonic() - begin_s
        if passed_s > limit_s and not aborted:
            aborted = True
            centre.abort_waiting(limit_s)
        if passed_s > reported * REPORT_EVERY_S:
            reported += 1
            console.note(f"Rank 0 has ended and waits since {passed_s:.0f} s for {', '.join(others[:8])}.")
        time.sleep(SLICE_S)
    if centre.verdict is None:
        return 0
    console.show_verdict(centre.verdict)
    return centre.verdict.code


def _see_them_end(centre: hub.Hub) -> None:
    """Wait after a failure: the others need a moment to end their commands."""
    end_s = time.monotonic() + LEAVE_LIMIT_S
    while (others := centre.running()) and time.monotonic() < end_s:
        time.sleep(SLICE_S)
    if others:
        console.note(f"Still running {LEAVE_LIMIT_S:g} s later, and left to the scheduler: {', '.join(others[:8])}.")


def _run(who: identity.Identity, wait: float, command: tuple[str, ...], environ: dict[str, str]) -> int:
    """Connect to the other tasks, run the command, and end with the others; return the exit code."""
    channel, start = member.join(who, wait, console.note)
    interface = start.interface or interfaces.of_address(channel.address)
    environ |= variables.of_slot(start.slot, start.address or channel.peer, start.port, interface, environ)
    environ[reports.VARIABLE] = reports.FAILURES
    listener = _Listener(channel, who)
    try:
        ended = Command(command, environ).wait(listener.over.is_set)
    except UserError as error:
        console.show_error(error)
        ended = Ended(console.USER_ERROR, False, Failed(error.problem, remedy=error.remedy), [])
    try:
        return _report(who, ended, channel, listener)
    finally:
        channel.close()


class _Listener:
    """Listens to rank 0, while the command runs, for the verdict that all must end."""

    def __init__(self, channel: Channel, who: identity.Identity) -> None:
        self.over = threading.Event()
        self.verdict: Verdict | None = None
        self.lost = ""
        self._channel, self._who = channel, who
        threading.Thread(target=self._listen, name="rank 0", daemon=True).start()

    def _listen(self) -> None:
        try:
            while self.verdict is None:
                message = self._channel.receive(REPORT_EVERY_S)
                if isinstance(message, Verdict):
                    # At once: a launcher that sees the first task end gives the others one second.
                    _print_verdict(self._who, message)
                    self.verdict = message
        except (Closed, ValueError) as error:
            self.lost = str(error) or "the connection broke"
        self.over.set()


def _report(who: identity.Identity, ended: Ended, channel: Channel, listener: _Listener) -> int:
    """Send rank 0 the end of our command, and show the user the verdict; return the exit code."""
    here = f"Rank {who.rank} on {socket.gethostname()}"
    try:
        channel.send(ended)
        if ended.code:
            listener.over.wait(VERDICT_LIMIT_S)
    except Closed as closed:
        listener.lost = listener.lost or str(closed)
    verdict = listener.verdict
    if verdict is None:
        if ended.code:
            console.note(f"{here} ended with {exit_text(ended.code)}.")
        if listener.lost and ended.asked:
            console.note(f"{here} was ended: it lost rank 0 ({listener.lost}). Rank 0's own output says why.")
        return ended.code
    return verdict.code


def _print_verdict(who: identity.Identity, verdict: Verdict) -> None:
    """Show the verdict, in full on rank 0: most schedulers show its output first, some no other."""
    console.show_verdict(verdict if who.rank == 0 else replace(verdict, lines=[]))
    if who.rank not in (0, verdict.rank):
        console.note(f"So rank {who.rank} on {socket.gethostname()} is ended.")
