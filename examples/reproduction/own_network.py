"""Our own rows of collectives: single messages between emulated hosts, from the rate and latency of their links."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from paceline.collectives.bounds import ALLREDUCE, BROADCAST, LINEAR, REDUCE, Message, bound_s
from paceline.core import _core
from paceline.examples.reproduction.measured import Cell
from paceline.examples.reproduction.own import BENCHMARKS, OwnRow
from paceline.registry.codecs import CODECS
from paceline.registry.collectives import COLLECTIVES

KIND = "collectives: rate and latency of the links"
# Share of an Ethernet that carries TCP's payload (docs/measurements/benchmarks.md).
PAYLOAD = 0.956
BYTES_64_MIB = float(64 << 20)
BLOCK_BYTES = 64 << 10
FAR = "collectives-far"
LATE = (
    "Ranks leave a round of Horovod's cycles milliseconds apart, and a message waits for the last one, which the model "
    "leaves out. In the rows with events all ranks begin together."
)
BUCKETS = (
    "A link's token bucket lets 50 kB pass at once after silence, which the model leaves out: 64 KiB take less than "
    "their bytes at the link's rate. Processors and TCP add about a millisecond."
)
CHAIN = "A linear allreduce fills both directions of a link, where TCP's bbr takes 6 % longer than cubic."
SHARED = "Ranks that send to one rank at the same time share its link, while another link waits."
# By section and collective.
NOTES = {
    ("allreduce:", "direct"): SHARED,
    ("allreduce-codecs", "linear"): CHAIN,
    **{(f"{FAR}:", name): LATE for name in ("direct", "doubling")},
    **{(f"{FAR}-events", name): BUCKETS for name in ("direct", "doubling")},
}
# (section, collective, ranks, bits per second, latency, bytes, title of the table)
ALLREDUCES = (
    *(("allreduce:", name, 4, 200e6, 0.0, BYTES_64_MIB, "allreduce of 64MiB") for name in ("ring", "direct")),
    *(
        ("allreduce-codecs", name, 4, 200e6, 0.0, BYTES_64_MIB, "allreduce of 67.1 MB")
        for name in ("linear", "ring+bf16", "ring+q8")
    ),
    *(("collectives-2-hosts", name, 2, 1e9, 0.0, BYTES_64_MIB, "allreduce of 67.1 MB") for name in ("linear", "ring")),
    *(
        (section, name, 4, 200e6, 2e-3, size, f"allreduce of {size / 1024:g}KiB")
        for section in (f"{FAR}:", f"{FAR}-events")
        for size in (4096.0, 65536.0)
        for name in ("direct", "doubling")
    ),
)
# (section, operation, ranks, bits per second); `linear`, 64 MiB.
ONE_WAY = (
    ("broadcast:", BROADCAST, 4, 200e6),
    ("reduce:", REDUCE, 4, 200e6),
    ("collectives-2-hosts", BROADCAST, 2, 1e9),
    ("collectives-2-hosts", REDUCE, 2, 1e9),
    ("broadcast-growth", BROADCAST, 2, 200e6),
    ("broadcast-growth", BROADCAST, 8, 200e6),
)


def rows() -> Iterator[OwnRow]:
    """Yield the rows."""
    for section, name, ranks, rate, latency_s, size, under in ALLREDUCES:
        events = ", events" if section.endswith("events") else ""
        quantity = f"{ALLREDUCE}, {name}, {size / 1024:g} KiB, {ranks} hosts, {_rate(rate)}{events}, ms"
        cell = Cell(BENCHMARKS, section, (name,), "message ms", under)
        simulated = partial(_allreduce_ms, name, ranks, rate, latency_s, size)
        yield OwnRow(KIND, quantity, BENCHMARKS, cell.number, simulated, NOTES.get((section, name), ""))
    for section, operation, ranks, rate in ONE_WAY:
        quantity = f"{operation}, {LINEAR}, 65536 KiB, {ranks} hosts, {_rate(rate)}, ms"
        cell = Cell(BENCHMARKS, section, (LINEAR,), "message ms", f"{operation} of 67.1 MB: {ranks} ranks")
        yield OwnRow(KIND, quantity, BENCHMARKS, cell.number, partial(_one_way_ms, operation, ranks, rate))


def _rate(rate: float) -> str:
    return f"{rate / 1e6:g} Mbit/s"


def _allreduce_ms(name: str, ranks: int, rate: float, latency_s: float, size: float) -> float:
    collective, _, codec = name.partition("+")
    sent = size * CODECS[codec or "none"].wire_share
    method, _ = COLLECTIVES[collective]
    # Gloo sends only when it has the receiver's notice: one more latency. Later notices travel beside data.
    return 1e3 * (latency_s + _core.allreduce_time(method, ranks, sent, latency_s, 0.0, 8 / (PAYLOAD * rate), 0.0))


def _one_way_ms(operation: str, ranks: int, rate: float) -> float:
    return 1e3 * bound_s(operation, LINEAR, Message(ranks, BYTES_64_MIB, BLOCK_BYTES), PAYLOAD * rate / 8)
