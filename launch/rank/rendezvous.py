"""Horovod's own rendezvous server, in which Gloo's ranks find each other; no framework is imported for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from paceline.launch import horovodrun
from paceline.launch.rank import interfaces
from paceline.launch.rank.placement import Slot


class Rendezvous:
    """The server of one world. Raises UserError if Horovod is not installed.

    Horovod's clients, which are in C++, prove nothing. So the server answers only hosts of tasks that have proved that
    they belong to the job. `say` shows the user a line.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        horovodrun.words()
        # Here and not at the first use: the import takes a moment, during which the other tasks start.
        from horovod.runner.common.util.hosts import SlotInfo
        from horovod.runner.http.http_server import RendezvousHandler, RendezvousServer

        self._slot_info, self._handler, self._say = SlotInfo, RendezvousHandler, say
        self._server: Any = RendezvousServer()

    def serve(self, slots: Sequence[Slot], address: str, clients: frozenset[str]) -> int:
        """Start to serve these ranks on `address` ("" means all interfaces); return the port.

        Clients on other addresses than `clients` and loopback are refused.
        """
        port: int = self._server.start(_only_for(clients, self._handler, self._say), address)
        self._server.init(
            [
                self._slot_info(
                    slot.hostname,
                    slot.rank,
                    slot.local_rank,
                    slot.cross_rank,
                    slot.size,
                    slot.local_size,
                    slot.cross_size,
                )
                for slot in slots
            ]
        )
        return port


def _only_for(clients: frozenset[str], handler: Any, say: Callable[[str], None]) -> Any:
    """Return a class derived from Horovod's `handler` of requests that ends connections from elsewhere."""
    refused: set[str] = set()

    class Handler(handler):
        def handle(self) -> None:
            client = self.client_address[0]
            if client in clients or interfaces.is_loopback(client):
                super().handle()
            elif client not in refused:
                refused.add(client)
                say(
                    f"Horovod's rendezvous on rank 0 refused {client}: no task of this job has come from there. A rank "
                    "in a container needs the network of its task (docker run --network host)."
                )

        def do_HEAD(self) -> None:
            # Inherited from a server of files: names and sizes in the working directory.
            self.send_status_code(405)

    return Handler
