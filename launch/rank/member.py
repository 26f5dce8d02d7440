"""A task's connection to rank 0: find it on the possible hosts, authenticate, wait for all ranks."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from paceline.errors import UserError
from paceline.launch.failures.verdict import ranks_text
from paceline.launch.rank import interfaces, messages, proof
from paceline.launch.rank.channel import Channel, Closed
from paceline.launch.rank.hub import PORT_TIMEOUT_S, REPORT_S
from paceline.launch.rank.identity import Identity
from paceline.launch.rank.messages import Challenge, Hello, Refused, Start, Waiting, Welcome

CONNECT_LIMIT_S = 3.0
PAUSE_S = 0.2  # between two attempts to find rank 0
# Rank 0's limit begins when it listens, a task's at its own start. A task must not stop before rank 0 reports why.
MARGIN_S = 10.0

Say = Callable[[str], None]


class _Foreign(Exception):
    """The peer that answers is not this job's rank 0."""


@dataclass
class _Search:
    """Hosts tried so far and the results, for error messages."""

    begin_s: float = field(default_factory=time.monotonic)
    seen: dict[str, str] = field(default_factory=dict)
    reported: int = 0

    def passed_s(self) -> float:
        return time.monotonic() - self.begin_s

    def text(self) -> str:
        return "; ".join(f"{host}: {what}" for host, what in self.seen.items())


def join(identity: Identity, limit_s: float, say: Say) -> tuple[Channel, Start]:
    """Connect to rank 0 and wait for all ranks. Raises UserError if that fails or takes longer than `limit_s`."""
    search = _Search()
    # On rank 0's host its name may resolve to any address.
    hosts = identity.hosts
    if identity.rank == 0:
        hosts = (interfaces.to_listen_on(hosts) or "127.0.0.1",)
    while True:
        for host in hosts:
            channel = _try(host, identity, search)
            if channel is not None:
                return channel, _wait_for_all(channel, identity, limit_s + MARGIN_S, say)
        _complain(hosts, identity, search, limit_s, say)
        time.sleep(PAUSE_S)


def _try(host: str, identity: Identity, search: _Search) -> Channel | None:
    """Return the connection to rank 0 if it is on `host`; otherwise None, with the reason in `search`."""
    connection: socket.socket | None = None
    address = ""
    try:
        address = str(socket.getaddrinfo(host, identity.port, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])
        search.seen[host] = f"nobody listens on {address}:{identity.port}"
        connection = socket.create_connection((address, identity.port), CONNECT_LIMIT_S)
        channel = Channel(connection)
        _introduce(channel, identity)
        return channel
    except socket.gaierror as error:
        search.seen[host] = f"this name is unknown ({error.strerror})"
    except ConnectionRefusedError:
        if interfaces.is_loopback(address) and not _is_here(host):
            search.seen[host] += f", for {host} resolves to loopback on this host, {socket.gethostname()}"
    except TimeoutError:
        search.seen[host] = f"{address}:{identity.port} does not answer"
    except OSError as error:
        search.seen[host] = f"{address}:{identity.port}: {error.strerror or error}"
    except Closed as closed:
        search.seen[host] = f"{address}:{identity.port} ended the connection ({closed})"
    except _Foreign as foreign:
        search.seen[host] = f"{address}:{identity.port} is taken: {foreign}"
    except ValueError as error:
        search.seen[host] = f"{address}:{identity.port} is another program's: {error}"
    if connection is not None:
        connection.close()
    return None


def _is_here(host: str) -> bool:
    """True if a name may resolve to loopback: rank 0 may be on this host and not listen yet."""
    own = socket.gethostname().partition(".")[0]
    return host == "localhost" or interfaces.is_loopback(host) or host.partition(".")[0] == own


def _introduce(channel: Channel, identity: Identity) -> None:
    key, nonce = proof.key(identity.job), proof.nonce()
    challenge = channel.receive(CONNECT_LIMIT_S)
    if challenge is None:
        raise ValueError(f"it says nothing within {CONNECT_LIMIT_S:g} s")
    if not isinstance(challenge, Challenge) or challenge.protocol != messages.PROTOCOL:
        raise ValueError("it speaks another version of Paceline")
    channel.send(
        Hello(
            proof.answer(key, challenge.nonce, "task"),
            nonce,
            identity.rank,
            identity.size,
            socket.gethostname(),
            interfaces.machine(),
            channel.address,
            identity.local_rank,
        )
    )
    reply = channel.receive(CONNECT_LIMIT_S)
    if isinstance(reply, Refused):
        job = proof.fingerprint(identity.job)
        if reply.unproven and challenge.job == job:
            raise UserError(
                f"Rank {identity.rank} on {socket.gethostname()} was refused by rank 0 on {channel.peer}: "
                f"this task has another {proof.SECRET_VARIABLE} than rank 0 of the same job, {job}.",
                f"Give all tasks of the job the same {proof.SECRET_VARIABLE}, or none of them one.",
            )
        if reply.foreign:
            jobs = f"job {challenge.job}, expected {job}. " if reply.unproven else ""
            raise _Foreign(f"{jobs}{reply.problem} {reply.remedy}")
        raise UserError(reply.problem, reply.remedy)
    if not isinstance(reply, Welcome) or not proof.holds(key, nonce, "hub", reply.proof):
        raise _Foreign("it does not know this job")


def _complain(hosts: tuple[str, ...], identity: Identity, search: _Search, limit_s: float, say: Say) -> None:
    """Report from time to time which hosts were tried; raise UserError after the limit or if waiting is useless."""
    passed_s = search.passed_s()
    here = f"Rank {identity.rank} on {socket.gethostname()}"
    source = f" Rank 0's host is known from {identity.hosts_from}." if identity.hosts_from else ""
    hopeless = [what for what in search.seen.values() if "is taken" in what or "resolves to loopback" in what]
    if passed_s > PORT_TIMEOUT_S and len(hopeless) == len(hosts):
        raise UserError(
            f"{here} cannot reach rank 0. {search.text()}.{source}",
            "Name rank 0's network address and a port that nobody else uses, for all tasks: --rendezvous ADDRESS:PORT.",
        )
    if passed_s > limit_s:
        raise UserError(
            f"{here} has not found rank 0 within {limit_s:g} s. {search.text()}.{source}",
            "See whether rank 0's task runs, and whether a firewall lets this port through; --rendezvous HOST:PORT "
            "names another place, --wait SECONDS gives a slow start more time.",
        )
    next_s = (
        REPORT_S[search.reported] if search.reported < len(REPORT_S) else 60.0 * (search.reported - len(REPORT_S) + 2)
    )
    if passed_s > next_s:
        search.reported += 1
        say(f"{here} waits for rank 0 since {passed_s:.0f} s (limit {limit_s:g} s). {search.text()}.{source}")


def _wait_for_all(channel: Channel, identity: Identity, limit_s: float, say: Say) -> Start:
    here = f"Rank {identity.rank} on {socket.gethostname()}"
    end_s = time.monotonic() + limit_s
    while True:
        try:
            message = channel.receive(max(0.0, end_s - time.monotonic()))
        except Closed as closed:
            raise UserError(
                f"{here} lost rank 0 before the start: {closed}.", "Rank 0's own output says why."
            ) from None
        if isinstance(message, Start):
            return message
        if isinstance(message, Refused):
            raise UserError(message.problem, message.remedy)
        if isinstance(message, Waiting):
            say(
                f"{here} waits for {ranks_text(message.missing).lower()} since {message.seconds:.0f} s: "
                f"{message.present} of {identity.size} are there."
            )
        if message is None:
            raise UserError(
                f"{here} waited {limit_s:g} s for the others, and rank 0 told nothing.", "See what rank 0's task does."
            )
