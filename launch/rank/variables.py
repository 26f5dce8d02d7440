"""Variables with a rank's place, as Horovod reads them with Gloo."""

from __future__ import annotations

from collections.abc import Mapping

from paceline.launch.rank.identity import Identity
from paceline.launch.rank.placement import Slot

_ALWAYS = {
    "HOROVOD_CONTROLLER": "gloo",
    "HOROVOD_CPU_OPERATIONS": "gloo",
    # Show output at once, as under horovodrun.
    "PYTHONUNBUFFERED": "1",
}
# A choice of the user overrides these.
_CHOSEN_BY_USER = ("HOROVOD_GLOO_IFACE", "NCCL_SOCKET_IFNAME", "PYTHONUNBUFFERED")


def of_slot(slot: Slot, address: str, port: int, interface: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of one rank; `address` and `port`: the rendezvous server's, as this task reaches it."""
    made = {
        "HOROVOD_HOSTNAME": slot.hostname,
        "HOROVOD_RANK": str(slot.rank),
        "HOROVOD_SIZE": str(slot.size),
        "HOROVOD_LOCAL_RANK": str(slot.local_rank),
        "HOROVOD_LOCAL_SIZE": str(slot.local_size),
        "HOROVOD_CROSS_RANK": str(slot.cross_rank),
        "HOROVOD_CROSS_SIZE": str(slot.cross_size),
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": address,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
        **_ALWAYS,
    }
    if interface:
        made |= {"HOROVOD_GLOO_IFACE": interface, "NCCL_SOCKET_IFNAME": interface}
    return {name: value for name, value in made.items() if not (name in _CHOSEN_BY_USER and name in environ)}


def known_before(identity: Identity, environ: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the variables known before connecting to other tasks, and the names of those agreed at the start."""
    known = {"HOROVOD_RANK": str(identity.rank), "HOROVOD_SIZE": str(identity.size), **_ALWAYS}
    if identity.local_rank is not None:
        known["HOROVOD_LOCAL_RANK"] = str(identity.local_rank)
    slot = Slot("", identity.rank, 0, 0, identity.size, 1, 1)
    agreed = [name for name in of_slot(slot, "", 0, "any", environ) if name not in known]
    return known, agreed
