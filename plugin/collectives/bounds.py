"""What a collective takes at least: the bounds that a measurement is held against.

Equal hosts, one full-duplex card of B bytes/s each, a switch that is never the limit; n bytes, p ranks, blocks of b
bytes, L seconds from host to host. A bound is `starts` x L + `messages` x n/B. It leaves out what a processor does
(calls, copies, additions), headers of frames, and latencies that can hide behind blocks on the wire; so a share of 1
is not to be had, and one of 0.95 is as good as TCP over Ethernet gets.

  operation   collective          starts        messages
  broadcast   linear              p - 1         1 + (p - 2) b/n
  broadcast   tree (Gloo's)       ceil(log2 p)  ceil(log2 p)
  reduce      linear              p - 1         1 + (p - 2) b/n
  allreduce   ring (Gloo's, too)  2 (p - 1)     2 (p - 1)/p
  allreduce   direct              2             2 (p - 1)/p
  allreduce   doubling            log2 p        log2 p; 2 more of both if p is no power of two
  allreduce   linear              2 (p - 1)     2 (1 + (p - 2) b/n) on one card; p = 2: 1, one way each

core/collectives/collective_time.h predicts times, with start-ups of blocks and processors in them; this is what no
implementation of the collective gets below.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from paceline.registry.codecs import CODECS

BROADCAST, REDUCE, ALLREDUCE = "broadcast", "reduce", "allreduce"
OPERATIONS = (BROADCAST, REDUCE, ALLREDUCE)
LINEAR, RING, DIRECT, DOUBLING, TREE = "linear", "ring", "direct", "doubling", "tree"
# What a float32 takes on the wire, relative to its four bytes.
ENCODED = {name: codec.wire_share for name, codec in CODECS.items()}


@dataclass(frozen=True)
class Message:
    """A message of `size_bytes` that travels among `ranks` in blocks of `block_bytes`, encoded if it is."""

    ranks: int
    size_bytes: float
    block_bytes: float = 1.0

    @property
    def passing(self) -> float:
        """How many messages long it takes the first block to get from the second rank of a chain to the last."""
        return max(self.ranks - 2, 0) * min(self.block_bytes / self.size_bytes, 1.0) if self.size_bytes else 0.0

    @property
    def rounds(self) -> int:
        """Of exchanges at distance 1, 2, 4, ..."""
        return int(math.log2(self.ranks))

    @property
    def extra(self) -> int:
        """Messages by which ranks beyond a power of two take part."""
        return 0 if self.ranks == 2**self.rounds else 2


def _linear(message: Message) -> tuple[float, float]:
    return message.ranks - 1, 1 + message.passing


def _linear_allreduce(message: Message) -> tuple[float, float]:
    # Ranks within the chain send every block twice; of two ranks each sends it once.
    ways = 2 if message.ranks > 2 else 1
    return 2 * (message.ranks - 1), ways * (1 + message.passing)


def _tree(message: Message) -> tuple[float, float]:
    rounds = math.ceil(math.log2(message.ranks))
    return rounds, rounds


def _doubling(message: Message) -> tuple[float, float]:
    count = message.rounds + message.extra
    return count, count


def _shards(message: Message) -> float:
    return 2 * (message.ranks - 1) / message.ranks


# (operation, collective) -> start-ups and messages.
_BOUNDS: dict[tuple[str, str], Callable[[Message], tuple[float, float]]] = {
    (BROADCAST, LINEAR): _linear,
    (BROADCAST, TREE): _tree,
    (REDUCE, LINEAR): _linear,
    (ALLREDUCE, LINEAR): _linear_allreduce,
    (ALLREDUCE, RING): lambda message: (2 * (message.ranks - 1), _shards(message)),
    (ALLREDUCE, DIRECT): lambda message: (2, _shards(message)),
    (ALLREDUCE, DOUBLING): _doubling,
}


def known(operation: str, collective: str) -> bool:
    """Whether there is a bound."""
    return (operation, collective) in _BOUNDS


def bound_s(
    operation: str, collective: str, message: Message, bytes_per_s: float, latency_s: float = 0.0, codec: str = "none"
) -> float:
    """The bound in seconds on cards of `bytes_per_s`, `latency_s` apart. Raises KeyError where there is none.

    Blocks are of encoded bytes or not, as the collective cuts them: the part of a bound that they make is small.
    """
    if message.ranks == 1:
        return 0.0
    starts, messages = _BOUNDS[operation, collective](message)
    return starts * latency_s + messages * message.size_bytes * ENCODED[codec] / bytes_per_s


def bus_factor(operation: str, ranks: int) -> float:
    """The share of a message that every card has to send or to receive at least, whatever the collective."""
    return 2 * (ranks - 1) / ranks if operation == ALLREDUCE else 1.0
