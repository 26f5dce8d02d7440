"""The rows of docs/benchmarks.md: for each the command line that measures it, and how long that may take.

At most four systems take turns: more crowd each other out of a small machine's processor.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from paceline.config import nearest
from paceline.errors import UserError


@dataclass(frozen=True)
class Row:
    """The command with `words` gives `results` lines of JSON, and measures at most `limit_s` seconds for each.

    `takes_s` is what it takes in all where the limit does not say that.
    """

    name: str
    title: str
    words: str
    limit_s: float
    results: int = 1
    takes_s: float | None = None

    @property
    def benchmark(self) -> str:
        """The command behind `python -m examples.benchmarks`."""
        return self.words.split()[0]

    @property
    def needs_root(self) -> bool:
        """Whether it emulates hosts."""
        words = self.words.split()
        return "--hosts" in words and words[words.index("--hosts") + 1] != "1"

    def arguments(self, quick: bool, limit_s: float | None) -> list[str]:
        """What follows `python -m examples.benchmarks`. `limit_s` takes the place of the row's own limit."""
        further = QUICK[self.benchmark].words if quick else ""
        limit = f"--time-limit-s {self._limit_s(quick, limit_s):g}"
        return shlex.split(f"{self.words} {limit} {further}")

    def expected_s(self, quick: bool, limit_s: float | None) -> float:
        """About how long it takes at most."""
        if self.takes_s is not None:
            return self.takes_s * (QUICK_SHARE if quick else 1)
        return self.results * (START_S[self.benchmark] + self._limit_s(quick, limit_s))

    def _limit_s(self, quick: bool, limit_s: float | None) -> float:
        if limit_s is not None:
            return limit_s
        return min(self.limit_s, QUICK[self.benchmark].limit_s) if quick else self.limit_s


@dataclass(frozen=True)
class Quick:
    """Further words that make a benchmark short, and what it measures then at most for a result."""

    words: str
    limit_s: float


QUICK = {
    "baseline": Quick("--turns 3", 20.0),
    "fusion": Quick("--turns 3", 20.0),
    "pipelined": Quick("--turns 3", 30.0),
    "collectives": Quick("--turns 2", 20.0),
    "codecs": Quick("--seeds 1 --steps 60", 3600.0),
    "pipeline": Quick("--turns 2", 20.0),
    "partial": Quick("--iterations 8 --seeds 1", 60.0),
    "scale": Quick("--turns 2", 5.0),
}
QUICK_SHARE = 0.2
# Starting the ranks, plans and warming up, for each result.
START_S = {
    "baseline": 20.0,
    "fusion": 60.0,
    "pipelined": 60.0,
    "collectives": 15.0,
    "codecs": 0.0,
    "pipeline": 15.0,
    "partial": 15.0,
    "scale": 30.0,
}
# What the rows of a benchmark stand under, in this order.
GROUPS = {
    "baseline": "Horovod and DDP",
    "fusion": "Merging",
    "pipelined": "The pipelined exchange",
    "collectives": "Collectives",
    "codecs": "Codecs",
    "pipeline": "Pipeline stages",
    "partial": "Partial collectives",
    "scale": "Scale",
}

_FAST = "--hosts 4 --rate 1gbit"
_SLOW = "--hosts 4 --rate 200mbit"
_FAR = f"{_SLOW} --latency 2ms"
_OPTIMAL = "--policy optimal --armed"
_BUCKETS = "--bucket-bytes 65536"
_LARGE = "--sizes 64MiB"
_MANY = "--hosts 1 --np 2 --model many"

ROWS: tuple[Row, ...] = (
    Row(
        "baseline",
        "ResNet-20 and a tenth of ResNet-50, 4 hosts, 1 Gbit/s",
        f"baseline {_FAST} --model resnet20 --model resnet50-x0.1",
        60.0,
        results=2,
    ),
    Row("resnet20", "ResNet-20, 4 hosts, 1 Gbit/s", f"fusion {_FAST} --model resnet20 {_OPTIMAL}", 120.0),
    Row(
        "resnet20-2-hosts",
        "ResNet-20, 2 hosts, 1 Gbit/s",
        f"fusion --hosts 2 --rate 1gbit --model resnet20 {_OPTIMAL}",
        120.0,
    ),
    Row(
        "resnet50-x0.1",
        "a tenth of ResNet-50, 4 hosts, 1 Gbit/s",
        f"fusion {_FAST} --model resnet50-x0.1 {_OPTIMAL}",
        150.0,
    ),
    Row("resnet50", "ResNet-50, 4 hosts, 1 Gbit/s", f"fusion {_FAST} --model resnet50 {_OPTIMAL}", 240.0),
    Row(
        "vgg16-x0.3",
        "three tenths of VGG-16, whose largest layers go in parts, 4 hosts, 1 Gbit/s",
        f"fusion {_FAST} --model vgg16-x0.3 {_OPTIMAL}",
        300.0,
    ),
    Row(
        "resnet20-rtt",
        "ResNet-20, 4 hosts, 200 Mbit/s, a round trip of 4 ms",
        f"fusion {_FAR} --model resnet20 {_OPTIMAL}",
        120.0,
    ),
    Row(
        "bert-x0.02-rtt",
        "a fiftieth of BERT-base, 4 hosts, 200 Mbit/s, a round trip of 4 ms",
        f"fusion {_FAR} --model bert-base-x0.02 {_OPTIMAL}",
        180.0,
    ),
    Row(
        "bert-x0.02-fast-rtt",
        "the same where it computes twice as fast, and the wire sets the pace",
        f"fusion {_FAR} --model bert-base-x0.02-t0.5 {_OPTIMAL}",
        150.0,
    ),
    Row(
        "vgg16-x0.02-rtt",
        "a fiftieth of VGG-16, 4 hosts, 200 Mbit/s, a round trip of 4 ms",
        f"fusion {_FAR} --model vgg16-x0.02 {_OPTIMAL}",
        180.0,
    ),
    Row(
        "mgwfbp",
        "the policy of MG-WFBP, a tenth of ResNet-50, 4 hosts, 1 Gbit/s",
        f"fusion {_FAST} --model resnet50-x0.1 --policy mgwfbp",
        120.0,
    ),
    Row(
        "many",
        "1,000 tensors of 4 KiB in buckets, 2 ranks of one machine",
        f"fusion {_MANY} {_OPTIMAL} {_BUCKETS}",
        90.0,
    ),
    Row(
        "many-wrapper",
        "1,000 tensors of 4 KiB in buckets through Paceline's optimizer, 2 ranks of one machine",
        f"pipelined {_MANY} --systems ddp,sync_armed,pipelined,majority {_BUCKETS}",
        90.0,
    ),
    Row(
        "many-unmodified",
        "1,000 tensors of 4 KiB in buckets, a script for Horovod, 2 ranks of one machine",
        f"pipelined {_MANY} --systems ddp,unmodified_pipelined,unmodified_majority {_BUCKETS}",
        90.0,
    ),
    Row(
        "pipelined-balance",
        "communication takes as long as compute, 4 hosts",
        "pipelined --hosts 4 --model lstm-x0.01 --model resnet50-x0.02 --systems stock,pipelined,communication,alone",
        120.0,
        results=2,
    ),
    Row(
        "pipelined-third",
        "communication takes 0.3 times as long as compute, 4 hosts",
        "pipelined --hosts 4 --communication-share 0.3 --model resnet50-x0.02"
        " --systems stock,pipelined,communication,alone",
        90.0,
    ),
    Row(
        "pipelined-plans",
        "communication takes as long as compute, beside plans and DDP",
        "pipelined --hosts 4 --model lstm-x0.01 --model resnet50-x0.02"
        " --systems ddp,sync_optimal,pipelined,pipelined_optimal",
        120.0,
        results=2,
    ),
    Row(
        "broadcast",
        "64 MiB, 4 hosts, 200 Mbit/s",
        f"collectives {_SLOW} --operations broadcast {_LARGE} --systems gloo,ddp,linear",
        120.0,
    ),
    Row(
        "reduce",
        "64 MiB, 4 hosts, 200 Mbit/s",
        f"collectives {_SLOW} --operations reduce {_LARGE} --systems gloo,ddp,linear",
        120.0,
    ),
    Row(
        "allreduce",
        "64 MiB, 4 hosts, 200 Mbit/s",
        f"collectives {_SLOW} --operations allreduce {_LARGE} --systems gloo,ddp,ring,direct",
        150.0,
    ),
    Row(
        "allreduce-codecs",
        "64 MiB, 4 hosts, 200 Mbit/s, with codecs, and by linear pipelines",
        f"collectives {_SLOW} --operations allreduce {_LARGE} --systems linear,ring,ring+bf16,ring+q8",
        150.0,
    ),
    Row(
        "collectives-2-hosts",
        "64 MiB, 2 hosts, 1 Gbit/s",
        f"collectives --hosts 2 --rate 1gbit {_LARGE} --systems gloo,ddp,linear,ring",
        60.0,
        results=3,
    ),
    Row(
        "collectives-far",
        "small messages, 2 ms from host to host, alone and eight at once",
        f"collectives {_FAR} --operations allreduce --sizes 4KiB,64KiB --in-flight 8"
        " --systems gloo,ddp,direct,doubling",
        60.0,
        results=2,
    ),
    Row(
        "collectives-small",
        "small messages, 2 and 4 ranks of one machine",
        "collectives --ranks 2,4 --operations allreduce --sizes 4,4KiB --systems gloo,ddp,direct,doubling",
        30.0,
        results=4,
    ),
    Row(
        "broadcast-growth",
        "64 MiB among 2 and 8 hosts, 200 Mbit/s",
        f"collectives --hosts 2,8 --rate 200mbit --operations broadcast {_LARGE} --systems gloo,linear",
        120.0,
        results=2,
    ),
    Row(
        "model",
        "broadcast_parameters of 400 MB, 4 hosts, 200 Mbit/s",
        f"collectives {_SLOW} --operations none --model-mb 400 --systems gloo,linear",
        300.0,
    ),
    Row(
        "codecs-digits",
        "where training of digits ends",
        "codecs --model digits --seeds 5",
        1800.0,
        takes_s=180.0,
    ),
    Row(
        "codecs-uneven",
        "ranks that pull apart",
        "codecs --model uneven --codecs none,q8,q8_plain --seeds 3",
        1800.0,
        takes_s=120.0,
    ),
    Row(
        "stages",
        "stages that sleep, as torch.distributed.pipelining has them",
        "pipeline --stages 4 --microbatches 4 --models sleeping --systems gpipe,1f1b,torch_gpipe,torch_1f1b",
        90.0,
    ),
    Row(
        "stages-late",
        "stages that sleep, schedules with late gradients",
        "pipeline --stages 4 --microbatches 4 --models sleeping --systems gpipe,pipedream,2bw,pipemare",
        90.0,
    ),
    Row(
        "late-ranks",
        "64 bytes among 8 ranks, each 100 ms later than the one before",
        "partial --ranks 8 --part micro --skew-ms 100 --size 64 --iterations 64",
        300.0,
    ),
    Row(
        "uneven-training",
        "training where one random rank is late",
        "partial --ranks 8 --part training --case random --seeds 1",
        300.0,
    ),
    Row(
        "scale",
        "coordination by the number of ranks, on one machine and simulated 50 us apart",
        "scale --ranks 2,4,8,16,32 --latency 50us",
        20.0,
        results=6,
    ),
)


def chosen(names: Sequence[str]) -> list[Row]:
    """The rows with these names, or under these benchmarks, in their order; all of them without names.

    Raises UserError for a name that neither has.
    """
    for name in names:
        if name not in GROUPS and name not in {row.name for row in ROWS}:
            raise UserError(
                f"--only {name} cannot be used.",
                nearest(
                    name,
                    [*(row.name for row in ROWS), *GROUPS],
                    "`python -m examples.benchmarks all --list` has the names.",
                ),
            )
    return [row for row in ROWS if not names or row.name in names or row.benchmark in names]
