"""The hosts of a job as users write them: after -H, and in host files of Horovod, Open MPI, MPICH, PBS and LSF."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from paceline.errors import UserError

_NAME = re.compile(r"[\w.-]+")
_SLOTS = re.compile(r"(?:slots=)?(\d+)")
_MOST = re.compile(r"max[-_]slots=\d+")  # schedulers may use more slots, horovodrun does not
_FILE_FLAGS, _LIST_FLAGS = ("-hostfile", "--hostfile"), ("-H", "--hosts")


def listed(text: str) -> dict[str, int]:
    """Return slots by host, in order, from the argument of -H. Raises UserError."""
    found: dict[str, int] = {}
    for item in text.split(","):
        _add(found, [item.strip()], f"-H {text}")
    return found


def in_file(path: str) -> dict[str, int]:
    """Return slots by host from a host file: a host per line, `node1 slots=2`, `node1:2`, `node1 2` or `node1`.

    A host without slots has one; slots of a repeated host are summed. Raises UserError with the line.
    """
    found: dict[str, int] = {}
    try:
        lines = Path(path).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"The host file {path} cannot be read: {error}.", "Name a file with lines such as `node1 slots=2`."
        ) from None
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if words:
            _add(found, words, f"{path}, line {number}")
    if not found:
        raise UserError(f"The host file {path} names no host.", "Write lines such as `node1 slots=2` into it.")
    return found


def _add(found: dict[str, int], words: Sequence[str], where: str) -> None:
    host, separator, count = words[0].rpartition(":")
    more = [count, *words[1:]] if separator else words[1:]
    host = host if separator else words[0]
    if "@" in host:
        user, _, name = host.rpartition("@")
        raise UserError(
            f"{where}: horovodrun takes no user with a host, found {host!r}.",
            f"Write {name}, and `Host {name}` with `User {user}` below it into ~/.ssh/config.",
        )
    if "[" in host or ":" in host:
        raise UserError(
            f"{where}: horovodrun takes names and IPv4 addresses, found {words[0]!r}.",
            "Give the host a name, in /etc/hosts for example.",
        )
    slots = [match[1] for word in more if (match := _SLOTS.fullmatch(word))]
    others = [word for word in more if not (_SLOTS.fullmatch(word) or _MOST.fullmatch(word))]
    if not _NAME.fullmatch(host) or others or len(slots) > 1:
        raise UserError(
            f"{where}: {' '.join(words)!r} is not a host with its slots.",
            "Write -H node1:2,node2:2, or lines such as `node1 slots=2` into a host file.",
        )
    found[host] = found.get(host, 0) + int(slots[0] if slots else 1)


def asked_for(asked: argparse.Namespace) -> dict[str, int]:
    """Return the hosts in horovodrun's arguments; {}: none. Raises UserError for unreadable ones."""
    if asked.hostfile:
        return in_file(asked.hostfile)
    return listed(asked.hosts) if asked.hosts else {}


def plain(arguments: Sequence[str], asked: argparse.Namespace, hosts: Mapping[str, int]) -> list[str]:
    """Return horovodrun's `arguments` with the user's hosts replaced by `hosts` in its form: -H node1:2,node2:2."""
    names, given = (_FILE_FLAGS, asked.hostfile) if asked.hostfile else (_LIST_FLAGS, asked.hosts)
    if not hosts:
        return list(arguments)
    text = ",".join(f"{host}:{slots}" for host, slots in hosts.items())
    made: list[str] = []
    for word in arguments:
        before = made[-1] if made else ""
        flag, equals, value = word.partition("=")
        if word == given and _is_flag(before, names):
            made[-1:] = ["-H", text]
        elif equals and value == given and _is_flag(flag, names):
            made += ["-H", text]
        elif word == f"-H{given}":
            made.append(f"-H{text}")
        else:
            made.append(word)
    return made


def _is_flag(word: str, names: Sequence[str]) -> bool:
    return word in names or (len(word) > len("--h") and names[1].startswith(word))
