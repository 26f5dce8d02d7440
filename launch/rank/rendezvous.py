"""Horovod's own rendezvous server, in which Gloo's ranks find each other; no framework is imported for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paceline.launch import horovodrun
from paceline.launch.rank.placement import Slot


class Rendezvous:
    """The server of one world. Raises UserError if Horovod is not installed."""

    def __init__(self) -> None:
        horovodrun.words()
        # Here and not at the first use: the import takes a moment, during which the other tasks start.
        from horovod.runner.common.util.hosts import SlotInfo
        from horovod.runner.http.http_server import RendezvousServer

        self._slot_info = SlotInfo
        self._server: Any = RendezvousServer()

    def serve(self, slots: Sequence[Slot]) -> int:
        """Start to serve these ranks; return the port."""
        port: int = self._server.start()
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
