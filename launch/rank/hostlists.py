"""Hosts of a job in the formats of schedulers; rank 0 most likely runs on the first."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

MOST = 8  # hosts to try for rank 0: it is nearly always on the first, or on the second after a launch host

Hosts = Callable[[Mapping[str, str]], list[str]]

_PART = re.compile(r"[^,\[]*(?:\[[^\]]*\][^,\[]*)*")


def expand(text: str) -> list[str]:
    """Return the first hosts of a list in Slurm's form, such as `login1,gpu[08-10,12]-ib`."""
    found: list[str] = []
    at = 0
    while at < len(text) and len(found) < MOST:
        match = _PART.match(text, at)
        assert match is not None
        found += _names(match[0])
        at = match.end() + 1
    return found[:MOST]


def _names(part: str) -> list[str]:
    before, bracket, rest = part.partition("[")
    if not bracket:
        return [part] if part else []
    inside, _, after = rest.partition("]")
    numbers: list[str] = []
    for span in inside.split(","):
        first, _, last = span.partition("-")
        width = len(first)
        for number in range(int(first), int(last or first) + 1):
            numbers.append(str(number).zfill(width))
            if len(numbers) == MOST:
                break
    return [before + number + tail for number in numbers for tail in (_names(after) or [""])][:MOST]


def compact(*variables: str) -> Hosts:
    """Return a function that reads hosts from the first of `variables` that is set, in Slurm's compact form."""
    return lambda environ: next((expand(environ[name]) for name in variables if environ.get(name)), [])


def named(*variables: str) -> Hosts:
    """Return a function that reads one host from the first of `variables` that is set."""
    return lambda environ: next(([environ[name]] for name in variables if environ.get(name)), [])


def lsf(environ: Mapping[str, str]) -> list[str]:
    """Return hosts from LSF: `host slots host slots ...`, or a host per slot.

    On systems with jsrun the first host only launches and has one slot where the others have many: it comes last.
    """
    words = environ.get("LSB_MCPU_HOSTS", "").split()
    hosts, slots = words[0::2], words[1::2]
    if not hosts:
        return list(dict.fromkeys(environ.get("LSB_HOSTS", "").split()))[:MOST]
    if len(hosts) > 1 and slots[0] == "1" and "1" not in slots[1:]:
        hosts = [*hosts[1:MOST], hosts[0]]
    return hosts[:MOST]


def pbs(environ: Mapping[str, str]) -> list[str]:
    """Return hosts from PBS: a file with a host per slot, which some systems have only on the first host."""
    try:
        lines = Path(environ.get("PBS_NODEFILE", "")).read_text().split()
    except OSError:
        return []
    return list(dict.fromkeys(lines))[:MOST]


def open_mpi(environ: Mapping[str, str]) -> list[str]:
    """Return hosts from Open MPI 4: addresses of mpirun, which is on rank 0's host unless a list of hosts differs.

    The variable looks like `2383740928.0;tcp://10.0.0.1,192.168.1.1:39711`. The list of the batch system comes first:
    mpirun takes its hosts from there.
    """
    batch = next(filter(None, (find(environ) for find in (compact("SLURM_JOB_NODELIST"), lsf, pbs))), [])
    listed = re.search(r"tcp://([0-9.,]+):\d+", environ.get("OMPI_MCA_orte_hnp_uri", ""))
    return list(dict.fromkeys([*batch, *(listed[1].split(",") if listed else [])]))[:MOST]


def batch(environ: Mapping[str, str]) -> list[str]:
    """Return hosts from the batch system in which the launcher was started."""
    return compact("SLURM_JOB_NODELIST")(environ) or lsf(environ) or pbs(environ)


def indexed_pod(environ: Mapping[str, str]) -> list[str]:
    """Return the pod with index 0 of the same Kubernetes Job, in the subdomain of a headless service.

    Pods of an Indexed Job are named JOB-INDEX, and their own full name is in their /etc/hosts.
    """
    own = socket.gethostname()
    index = environ.get("JOB_COMPLETION_INDEX", "")
    name, _, domain = socket.getfqdn(own).partition(".")
    if not own.partition(".")[0].endswith(f"-{index}"):
        return []
    first = own.partition(".")[0].removesuffix(f"-{index}") + "-0"
    return [f"{first}.{domain}" if domain and name == own.partition(".")[0] else first]
