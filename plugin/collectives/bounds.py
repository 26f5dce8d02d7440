"""Lower bounds on the time of collectives, against which measurements are compared.

Model: equal hosts, one full-duplex card of B bytes/s each, and a switch that never limits. n bytes, p ranks, blocks of
b bytes, latency of L seconds between hosts. A bound is `starts` x L + `messages` x n/B. It leaves out processor time
(calls, copies, additions), frame headers, and latencies that overlap with blocks on the wire. A measurement therefore
cannot reach the bound; 95 % of it is as good as TCP over Ethernet gets.

  operation   collective          starts        messages
  broadcast   linear              p - 1         1 + (p - 2) b/n
  broadcast   tree (Gloo's)       ceil(log2 p)  ceil(log2 p)
  reduce      linear              p - 1         1 + (p - 2) b/n
  allreduce   ring (Gloo's, too)  2 (p - 1)     2 (p - 1)/p
  allreduce   direct              2             2 (p - 1)/p
  allreduce   doubling            log2 p        log2 p; 2 more of both unless p is a power of two
  allreduce   linear              2 (p - 1)     2 (1 + (p - 2) b/n) on one card; p = 2: 1, one way each
  reduce beside a broadcast of n bytes each, linear   p - 1   as the allreduce: inner ranks send every byte twice

core/collectives/collective_time.h predicts actual times, including start-ups of blocks and processor time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from paceline.registry.codecs import CODECS

BROADCAST, REDUCE, ALLREDUCE = "broadcast", "reduce", "allreduce"
OPERATIONS = (BROADCAST, REDUCE, ALLREDUCE)
REDUCE_BESIDE_BROADCAST = "reduce_beside_broadcast"  # two messages, submitted together
MEASURED = (*OPERATIONS, REDUCE_BESIDE_BROADCAST)
LINEAR, RING, DIRECT, DOUBLING, TREE = "linear", "ring", "direct", "doubling", "tree"
# Codec -> bytes on the wire per float32, divided by 4.
ENCODED = {name: codec.wire_share for name, codec in CODECS.items()}


@dataclass(frozen=True)
class Message:
    """A message of `size_bytes` between `ranks` in blocks of `block_bytes`; sizes are before encoding."""

    ranks: int
    size_bytes: float
    block_bytes: float = 1.0

    @property
    def passing(self) -> float:
        """Time of the first block from the second rank of a chain to the last, in units of one message's time."""
        return max(self.ranks - 2, 0) * min(self.block_bytes / self.size_bytes, 1.0) if self.size_bytes else 0.0

    @property
    def rounds(self) -> int:
        """Number of exchanges at distance 1, 2, 4, ...."""
        return int(math.log2(self.ranks))

    @property
    def extra(self) -> int:
        """Additional messages for the ranks beyond a power of two."""
        return 0 if self.ranks == 2**self.rounds else 2


def _linear(message: Message) -> tuple[float, float]:
    return message.ranks - 1, 1 + message.passing


def _both_ways(message: Message) -> tuple[float, float]:
    # Inner ranks of the chain send every block twice; with two ranks, each sends it once.
    ways = 2 if message.ranks > 2 else 1
    return message.ranks - 1, ways * (1 + message.passing)


def _linear_allreduce(message: Message) -> tuple[float, float]:
    starts, messages = _both_ways(message)
    return 2 * starts, messages


def _tree(message: Message) -> tuple[float, float]:
    rounds = math.ceil(math.log2(message.ranks))
    return rounds, rounds


def _doubling(message: Message) -> tuple[float, float]:
    count = message.rounds + message.extra
    return count, count


def _shards(message: Message) -> float:
    return 2 * (message.ranks - 1) / message.ranks


# (operation, collective) -> function that returns `starts` and `messages`.
_BOUNDS: dict[tuple[str, str], Callable[[Message], tuple[float, float]]] = {
    (BROADCAST, LINEAR): _linear,
    (BROADCAST, TREE): _tree,
    (REDUCE, LINEAR): _linear,
    (REDUCE_BESIDE_BROADCAST, LINEAR): _both_ways,
    (ALLREDUCE, LINEAR): _linear_allreduce,
    (ALLREDUCE, RING): lambda message: (2 * (message.ranks - 1), _shards(message)),
    (ALLREDUCE, DIRECT): lambda message: (2, _shards(message)),
    (ALLREDUCE, DOUBLING): _doubling,
}


def known(operation: str, collective: str) -> bool:
    """Return True if there is a bound."""
    return (operation, collective) in _BOUNDS


def bound_s(
    operation: str, collective: str, message: Message, bytes_per_s: float, latency_s: float = 0.0, codec: str = "none"
) -> float:
    """Return the bound in seconds for cards of `bytes_per_s` and a latency of `latency_s` between hosts.

    Raises KeyError where there is no bound. Some collectives cut encoded bytes into blocks, others raw ones; the bound
    ignores the difference, because blocks contribute little to it.
    """
    if message.ranks == 1:
        return 0.0
    starts, messages = _BOUNDS[operation, collective](message)
    return starts * latency_s + messages * message.size_bytes * ENCODED[codec] / bytes_per_s


def messages_of(operation: str) -> tuple[str, ...]:
    """Return the operations of messages that are submitted together, the first message's first."""
    return (REDUCE, BROADCAST) if operation == REDUCE_BESIDE_BROADCAST else (operation,)


def bus_factor(operation: str, ranks: int) -> float:
    """Return the share of a message that every card sends or receives at least, with any collective."""
    return 2 * (ranks - 1) / ranks if operation == ALLREDUCE else 1.0
