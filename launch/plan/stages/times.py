"""Durations of passes and transfers in `paceline plan stages`, in ticks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.collectives import network_file
from paceline.errors import UserError
from paceline.launch.quantities import size_bytes, size_name
from paceline.stages.schedule import Schedule
from paceline.stages.simulate import Simulation, simulate

LONGEST_TRANSFER = 1000.0  # ticks: more would not fit a picture


@dataclass(frozen=True)
class Times:
    """Ticks of passes, equal for all stages; `transfers`: from a stage to its neighbour, or one number for all.

    `measured`: description of the network if transfers come from one.
    """

    forward: int
    backward: int
    transfers: float | Mapping[tuple[int, int], float]
    measured: list[str] = field(default_factory=list)

    def simulated(self, schedule: Schedule, steps: int) -> Simulation:
        """Simulate the schedule for `steps` steps, with ticks as seconds."""
        return simulate(
            schedule, steps, forward_s=float(self.forward), backward_s=float(self.backward), transfer_s=self.transfers
        )

    def as_values(self) -> dict[str, Any]:
        """Return the ticks of transfers as JSON values."""
        if isinstance(self.transfers, Mapping):
            return {
                "transfers": [
                    {"sender": sender, "receiver": receiver, "ticks": ticks}
                    for (sender, receiver), ticks in self.transfers.items()
                ]
            }
        return {"transfers": self.transfers}


def of_network(
    path: Path, message: str | None, tick_ms: float | None, stages: int
) -> tuple[Mapping[Any, float], list[str]]:
    """Return ticks of messages between neighbour stages, and a description. Stage i is rank i of the network in `path`.

    Raises UserError for unusable sizes, ticks and files, and if the file has fewer ranks than `stages`.
    """
    if message is None or tick_ms is None:
        raise UserError(
            "--network says how long messages take, not how large they are, nor how long a tick is.",
            "Give --message, the size of a micro-batch's activations, and --tick, the milliseconds of a tick.",
        )
    if not 0 < tick_ms < float("inf"):
        raise UserError(f"--tick {tick_ms:g} cannot be used.", "Give milliseconds above 0.")
    size, found = size_bytes(message), network_file.load(path)
    if found.ranks < stages:
        raise UserError(
            f"The network file {path} was measured among {found.ranks} ranks, and there are {stages} stages.",
            "Give at most as many --stages, or measure with `paceline probe -np` as many ranks.",
        )
    ways = [way for stage in range(stages - 1) for way in ((stage, stage + 1), (stage + 1, stage))]
    seconds = {way: found.message_s(*way, size) for way in ways}
    ticks = {way: 1e3 * one / tick_ms for way, one in seconds.items()}
    if max(ticks.values(), default=0.0) > LONGEST_TRANSFER:
        raise UserError(
            f"A message of {message} travels {1e3 * max(seconds.values()):.4g} ms on this network, more than "
            f"{LONGEST_TRANSFER:g} ticks of {tick_ms:g} ms.",
            "Give a longer --tick, and passes in proportion (--forward, --backward).",
        )
    words = [f"Messages of {size_name(size)} on the network of {path}, a tick being {tick_ms:g} ms:"]
    for (sender, receiver), one in seconds.items():
        if sender < receiver:
            back = seconds[receiver, sender]
            words.append(
                f"stage {sender} to {receiver} {1e3 * one:.4g} ms"
                + ("" if back == one else f", back {1e3 * back:.4g} ms")
            )
    return ticks, [f"{words[0]} {'; '.join(words[1:]) or 'none travels'}."]
