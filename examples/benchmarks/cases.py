"""The cases of docs/measurements/benchmarks.md as data: name, kind, title, limit and settings.

At most four systems take turns: with more, they would compete for the processor of a small machine. Those of memory run
one after another.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from paceline.config import nearest
from paceline.errors import UserError
from paceline.examples.benchmarks.harness.report import Benchmark
from paceline.examples.benchmarks.harness.turns import Limits

# Kind -> module of its benchmark; in the order of the page.
KINDS = {
    "steps": "steps.benchmark",
    "keras": "keras_steps.benchmark",
    "collectives": "collectives.benchmark",
    "codecs": "training.codecs",
    "pipeline": "stages.benchmark",
    "skew": "skew.benchmark",
    "uneven": "training.uneven",
    "local": "training.local",
    "coordination": "scale.benchmark",
    "memory": "memory.benchmark",
    "outside": "outside.benchmark",
}
QUICK_S, QUICK_TURNS = 20.0, 2


def benchmark(kind: str) -> Benchmark:
    """Import the benchmark of a kind."""
    module = importlib.import_module(f"paceline.examples.benchmarks.{KINDS[kind]}")
    found: Benchmark = module.BENCHMARK
    return found


@dataclass(frozen=True)
class Case:
    """Settings of a benchmark that gives `results` tables and measures at most `limit_s` seconds for each.

    `changed` holds settings in the form of the command line.
    """

    name: str
    kind: str
    title: str
    limit_s: float
    settings: Mapping[str, Any]
    results: int = 1
    changed: tuple[str, ...] = ()

    @property
    def needs_root(self) -> bool:
        """True if the case emulates hosts."""
        settings = self.parsed()
        hosts = getattr(settings, "hosts", 1)
        if isinstance(hosts, int):
            return hosts > 1
        return max(hosts) > 1 and not settings.ranks

    @property
    def shown(self) -> str:
        """The title, or the changed settings."""
        return " ".join(self.changed) or self.title

    def with_settings(self, words: Sequence[str]) -> Case:
        """Return the case with settings replaced by `words`, such as "hosts=2". Raises UserError for a wrong one."""
        values = dict(self.settings)
        fields = {field.name: field for field in msgspec.structs.fields(benchmark(self.kind).settings)}
        for word in words:
            name, _, text = word.partition("=")
            if name not in fields:
                raise UserError(f"A case of {self.kind} has no setting {name}.", nearest(name, list(fields)))
            several = "tuple" in str(fields[name].type)
            values[name] = [part for part in text.split(",") if part] if several else (text if text != "none" else None)
        found = replace(self, settings=values, changed=(*self.changed, *words))
        found.parsed()
        return found

    def parsed(self, quick: bool = False) -> Any:
        """Return the settings. Raises UserError for an invalid value."""
        kind = benchmark(self.kind)
        values = {**self.settings, **(kind.quick if quick else {})}
        try:
            return msgspec.convert(values, kind.settings, strict=False)
        except msgspec.ValidationError as error:
            raise UserError(f"Settings of {self.name} cannot be used: {error}.", "Correct it.") from None

    def limits(self, quick: bool, limit_s: float | None, turns: int | None) -> Limits:
        """Return the limits; those of the command line override the case's."""
        usual = Limits(min(self.limit_s, QUICK_S), QUICK_TURNS) if quick else Limits(self.limit_s)
        return Limits(usual.time_s if limit_s is None else limit_s, usual.turns if turns is None else turns)

    def expected_s(self, quick: bool, limit_s: float | None) -> float:
        """Return the approximate maximum duration in seconds."""
        return self.results * (benchmark(self.kind).start_s + self.limits(quick, limit_s, None).time_s)


_FAST = {"hosts": 4, "rate": "1gbit"}
_FAR = {"hosts": 4, "rate": "200mbit", "latency": "2ms"}
_MANY = {"hosts": 1, "models": ["many"], "bucket_bytes": 65536}
_PARTS = ["stock", "pipelined", "communication", "alone"]
_CODECS = ["ddp", "ddp_fp16", "bf16", "q8"]
_DIVIDED = ["ddp", "zero", "fsdp", "split_armed"]
_HIDDEN = ["stock", "ddp", "pipelined", "split_armed"]
_KERAS = ["stock", "optimal", "pipelined", "alone"]
_KERAS_OTHERS = ["stock", "split", "local", "q8"]
_KERAS_TORCH = ["torch_stock", "torch_optimal", "torch_ddp", "torch_alone"]
_SLOW = {"hosts": [4], "rate": "200mbit"}
_NOISY = {**_SLOW, "operations": ["allreduce"], "sizes": ["4MiB"], "systems": ["horovod", "ddp", "ring", "direct"]}
_PARAM = {"program": "param", "warm_up": 2, "steps": 8, "systems": ["stock", "gloo", "ring", "direct", "ring+q8"]}
_GLOO = {"program": "gloo", "systems": ["gloo_new_allreduce_ring", "gloo_allreduce_halving_doubling", "stock", "ring"]}
_TRAINED = ["stock", "optimal", "pipelined", "q8"]
_BATCH = ["--batch-size", "16"]
_LISTS = {"systems": ["stock", "torch", "auto", "q8"], "warm_up": 2, "steps": 5}

# fmt: off
CASES: tuple[Case, ...] = (
    Case("baseline", "steps", "ResNet-20 and a tenth of ResNet-50, 4 hosts, 1 Gbit/s", 60.0,
         {**_FAST, "models": ["resnet20", "resnet50-x0.1"], "systems": ["stock", "ddp", "alone"]}, results=2),
    Case("resnet20", "steps", "ResNet-20, 4 hosts, 1 Gbit/s", 120.0, _FAST),
    Case("resnet20-2-hosts", "steps", "ResNet-20, 2 hosts, 1 Gbit/s", 120.0, {"hosts": 2}),
    Case("resnet50-x0.1", "steps", "a tenth of ResNet-50, 4 hosts, 1 Gbit/s", 150.0,
         {**_FAST, "models": ["resnet50-x0.1"]}),
    Case("resnet50", "steps", "ResNet-50, 4 hosts, 1 Gbit/s", 240.0, {**_FAST, "models": ["resnet50"]}),
    Case("vgg16-x0.3", "steps", "three tenths of VGG-16, whose largest layers go in parts, 4 hosts, 1 Gbit/s", 300.0,
         {**_FAST, "models": ["vgg16-x0.3"]}),
    Case("resnet20-rtt", "steps", "ResNet-20, 4 hosts, 200 Mbit/s, a round trip of 4 ms", 120.0, _FAR),
    Case("bert-x0.02-rtt", "steps", "a fiftieth of BERT-base, 4 hosts, 200 Mbit/s, a round trip of 4 ms", 180.0,
         {**_FAR, "models": ["bert-base-x0.02"]}),
    Case("bert-x0.02-fast-rtt", "steps", "the same where it computes twice as fast, and the wire sets the pace", 150.0,
         {**_FAR, "models": ["bert-base-x0.02-t0.5"]}),
    Case("vgg16-x0.02-rtt", "steps", "a fiftieth of VGG-16, 4 hosts, 200 Mbit/s, a round trip of 4 ms", 180.0,
         {**_FAR, "models": ["vgg16-x0.02"]}),
    Case("split-resnet20-rtt", "steps", "ResNet-20 with divided optimizer state, links as before", 120.0,
         {**_FAR, "systems": _DIVIDED}),
    Case("split-resnet20-rtt-pipelined", "steps", "ResNet-20 split, beside pipelined steps, links as before", 120.0,
         {**_FAR, "systems": _HIDDEN}),
    Case("split-bert-x0.02-rtt", "steps", "a fiftieth of BERT-base with divided optimizer state, links as before",
         180.0, {**_FAR, "models": ["bert-base-x0.02"], "systems": _DIVIDED}),
    Case("split-bert-x0.02-fast-rtt", "steps", "the same where it computes twice as fast, beside pipelined steps",
         180.0, {**_FAR, "models": ["bert-base-x0.02-t0.5"], "systems": _HIDDEN}),
    Case("codecs-resnet20-rtt", "steps", "ResNet-20 with codecs, links as before", 120.0, {**_FAR, "systems": _CODECS}),
    Case("codecs-bert-x0.02-fast-rtt", "steps", "a fiftieth of BERT-base in 600 ms with codecs", 180.0,
         {**_FAR, "models": ["bert-base-x0.02-t0.5"], "systems": _CODECS}),
    Case("mgwfbp", "steps", "the policy of MG-WFBP, a tenth of ResNet-50, 4 hosts, 1 Gbit/s", 120.0,
         {**_FAST, "models": ["resnet50-x0.1"], "systems": ["stock", "ddp", "mgwfbp", "alone"]}),
    Case("many", "steps", "1,000 tensors of 4 KiB in buckets, 2 ranks of one machine", 90.0, _MANY),
    Case("many-wrapper", "steps",
         "1,000 tensors of 4 KiB in buckets through Paceline's optimizer, 2 ranks of one machine", 90.0,
         {**_MANY, "systems": ["ddp", "sync_armed", "pipelined", "majority"]}),
    Case("many-unmodified", "steps",
         "1,000 tensors of 4 KiB in buckets, a script for Horovod, 2 ranks of one machine", 90.0,
         {**_MANY, "systems": ["ddp", "unmodified_pipelined", "unmodified_majority"]}),
    Case("pipelined-balance", "steps", "communication takes as long as compute, 4 hosts", 120.0,
         {"models": ["lstm-x0.01", "resnet50-x0.02"], "share": 1.0, "systems": _PARTS}, results=2),
    Case("pipelined-third", "steps", "communication takes 0.3 times as long as compute, 4 hosts", 90.0,
         {"models": ["resnet50-x0.02"], "share": 0.3, "systems": _PARTS}),
    Case("pipelined-plans", "steps", "communication takes as long as compute, beside plans and DDP", 120.0,
         {"models": ["lstm-x0.01", "resnet50-x0.02"], "share": 1.0,
          "systems": ["ddp", "sync_optimal", "pipelined", "pipelined_optimal"]}, results=2),
    Case("keras-2-hosts", "keras", "ResNet-20 in Keras on TensorFlow, 2 hosts, 200 Mbit/s", 90.0, {"systems": _KERAS}),
    Case("keras-others-2-hosts", "keras", "the same with other exchanges and a codec, 2 hosts, 200 Mbit/s", 90.0,
         {"systems": _KERAS_OTHERS}),
    Case("keras-torch-2-hosts", "keras", "ResNet-20 in Keras on PyTorch, 2 hosts, 200 Mbit/s", 90.0,
         {"systems": _KERAS_TORCH}),
    Case("keras-4-hosts", "keras", "ResNet-20 in Keras on TensorFlow, 4 hosts, 200 Mbit/s", 90.0,
         {"hosts": 4, "systems": _KERAS}),
    Case("keras-others-4-hosts", "keras", "the same with other exchanges and a codec, 4 hosts, 200 Mbit/s", 90.0,
         {"hosts": 4, "systems": _KERAS_OTHERS}),
    Case("keras-torch-4-hosts", "keras", "ResNet-20 in Keras on PyTorch, 4 hosts, 200 Mbit/s", 90.0,
         {"hosts": 4, "systems": _KERAS_TORCH}),
    Case("broadcast", "collectives", "64 MiB, 4 hosts, 200 Mbit/s", 120.0,
         {**_SLOW, "operations": ["broadcast"], "systems": ["horovod", "ddp", "linear"]}),
    Case("reduce", "collectives", "64 MiB, 4 hosts, 200 Mbit/s", 120.0,
         {**_SLOW, "operations": ["reduce"], "systems": ["horovod", "ddp", "linear"]}),
    Case("reduce-beside-broadcast", "collectives", "16 MiB, 2 and 4 hosts, 200 Mbit/s", 120.0,
         {**_SLOW, "hosts": [2, 4], "operations": ["reduce", "broadcast", "reduce_beside_broadcast"],
          "sizes": ["16MiB"], "systems": ["ddp", "linear"]}, results=6),
    Case("allreduce", "collectives", "64 MiB, 4 hosts, 200 Mbit/s", 150.0,
         {**_SLOW, "operations": ["allreduce"], "systems": ["horovod", "ddp", "ring", "direct"]}),
    Case("allreduce-codecs", "collectives", "64 MiB, 4 hosts, 200 Mbit/s, with codecs, and by linear pipelines", 150.0,
         {**_SLOW, "operations": ["allreduce"], "systems": ["linear", "ring", "ring+bf16", "ring+q8"]}),
    Case("collectives-2-hosts", "collectives", "64 MiB, 2 hosts, 1 Gbit/s", 60.0,
         {"hosts": [2], "rate": "1gbit", "systems": ["horovod", "ddp", "linear", "ring"]}, results=3),
    Case("collectives-far", "collectives", "small messages, 2 ms from host to host, alone and eight at once", 60.0,
         {**_SLOW, "latency": "2ms", "operations": ["allreduce"], "sizes": ["4KiB", "64KiB"], "in_flight": 8,
          "systems": ["horovod", "ddp", "direct", "doubling"]}, results=2),
    Case("collectives-far-events", "collectives", "the same, where all ranks begin a message together", 60.0,
         {**_SLOW, "latency": "2ms", "operations": ["allreduce"], "sizes": ["4KiB", "64KiB"], "wake": "events",
          "systems": ["direct", "doubling"]}, results=2),
    Case("collectives-small", "collectives", "small messages, 2 and 4 ranks of one machine", 30.0,
         {"ranks": [2, 4], "operations": ["allreduce"], "sizes": ["4", "4KiB"],
          "systems": ["horovod", "ddp", "direct", "doubling"]}, results=4),
    Case("allreduce-quiet", "collectives", "4 MiB, 4 hosts, 200 Mbit/s, for the two rows below", 60.0, _NOISY),
    Case("allreduce-noise-1.5", "collectives", "4 MiB, 4 hosts, 200 Mbit/s, p99 / p50 of a byte's time 1.5", 150.0,
         {**_NOISY, "noise": 1.5}),
    Case("allreduce-noise-3", "collectives", "4 MiB, 4 hosts, 200 Mbit/s, p99 / p50 of a byte's time 3", 150.0,
         {**_NOISY, "noise": 3.0}),
    Case("broadcast-growth", "collectives", "64 MiB among 2 and 8 hosts, 200 Mbit/s", 120.0,
         {**_SLOW, "hosts": [2, 8], "operations": ["broadcast"], "systems": ["horovod", "linear"]}, results=2),
    Case("model", "collectives", "broadcast_parameters of 400 MB, 4 hosts, 200 Mbit/s", 300.0,
         {**_SLOW, "operations": [], "model_mb": 400, "systems": ["horovod", "linear"]}),
    Case("codecs-digits", "codecs", "where training of digits ends", 180.0, {"model": "digits"}),
    Case("codecs-uneven", "codecs", "ranks that pull apart", 120.0,
         {"model": "uneven", "systems": ["none", "q8", "q8_plain"], "seeds": 3}),
    Case("stages", "pipeline", "stages that sleep, as torch.distributed.pipelining has them", 90.0,
         {"systems": ["gpipe", "1f1b", "torch_gpipe", "torch_1f1b"]}),
    Case("stages-late", "pipeline", "stages that sleep, schedules with late gradients", 90.0,
         {"systems": ["gpipe", "pipedream", "2bw", "pipemare"]}),
    Case("late-ranks", "skew", "64 bytes among 8 ranks, each 100 ms later than the one before", 300.0, {}),
    Case("uneven-training", "uneven", "training where one random rank is late", 300.0, {"seeds": 1}),
    Case("local-characters", "local", "a transformer that is averaged every 16 steps, 4 hosts, 100 Mbit/s", 400.0, {}),
    Case("scale", "coordination", "coordination by the number of ranks, on one machine and simulated 50 us apart", 20.0,
         {"latency": "50us"}, results=5),
    Case("memory-2-ranks", "memory", "peak memory of 2 ranks of one machine, 100 M parameters", 600.0, {}),
    Case("memory-4-ranks", "memory", "peak memory of 4 ranks of one machine, 25 M parameters", 600.0,
         {"ranks": 4, "parameters": 25e6}),
    Case("outside-param", "outside", "PARAM's comms.py, 2 hosts, 200 Mbit/s", 400.0, _PARAM),
    Case("outside-param-1gbit", "outside", "PARAM's comms.py, 2 hosts, 1 Gbit/s", 300.0, {**_PARAM, "rate": "1gbit"}),
    Case("outside-gloo", "outside", "Gloo's benchmark beside collectives of Horovod and Paceline, 2 hosts, 200 Mbit/s",
         200.0, _GLOO, results=3),
    Case("outside-gloo-1gbit", "outside", "the same, 1 Gbit/s", 150.0, {**_GLOO, "rate": "1gbit"}, results=3),
    Case("outside-horovod-torch", "outside", "Horovod's synthetic benchmark of PyTorch, 2 hosts, 200 Mbit/s", 400.0,
         {"program": "horovod_torch", "systems": _TRAINED, "warm_up": 40, "arguments": _BATCH}),
    Case("outside-horovod-keras", "outside", "Horovod's synthetic benchmark of Keras, 2 hosts, 200 Mbit/s", 450.0,
         {"program": "horovod_keras", "systems": _TRAINED, "steps": 40, "arguments": _BATCH}),
    Case("outside-kungfu", "outside", "gradients of KungFu's fake models, 2 hosts, 1 Gbit/s", 200.0,
         {**_LISTS, "program": "kungfu", "rate": "1gbit", "inputs": ["resnet50", "vgg16"]}, results=2),
    Case("outside-ddp-trace", "outside", "DDP's buckets and gradients of ResNet-50 in PARAM's trace, 2 hosts, 1 Gbit/s",
         200.0, {**_LISTS, "program": "chakra", "rate": "1gbit", "inputs": ["buckets", "gradients"]}, results=2),
)
# fmt: on


def chosen(names: Sequence[str]) -> list[Case]:
    """Return the cases with these names, or of these kinds, in their order; without names, all cases.

    Raises UserError for an unknown name.
    """
    known = [*(case.name for case in CASES), *KINDS]
    for name in names:
        if name not in known:
            raise UserError(f"There is no case {name}.", nearest(name, known))
    return [case for case in CASES if not names or case.name in names or case.kind in names]
