"""Programs of other projects: where they are found, the words that start them, and the figures in their output."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from paceline import config
from paceline.errors import UserError
from paceline.examples.benchmarks.cases import CASES, Case, chosen
from paceline.examples.benchmarks.harness.ratio import each_over
from paceline.examples.benchmarks.harness.turn import Turn
from paceline.examples.benchmarks.harness.turns import Comparison
from paceline.examples.benchmarks.outside import lists, sources
from paceline.examples.benchmarks.outside.benchmark import checked, missing, tables
from paceline.examples.benchmarks.outside.program import Run
from paceline.examples.benchmarks.outside.programs import PROGRAMS
from paceline.examples.benchmarks.outside.settings import Settings

OUTSIDE = [case for case in CASES if case.kind == "outside"]


def run_of(program: str, system: str, place: Path = Path("/checkout"), **settings: Any) -> Run:
    _, full = checked(Settings(program=program, **settings))
    return Run(place, system, full.inputs[0], full)


@pytest.mark.parametrize("case", OUTSIDE, ids=lambda case: case.name)
def test_settings_of_a_case_are_those_of_its_program(case: Case) -> None:
    program, settings = checked(case.parsed())
    assert len(settings.inputs) == case.results or program.at_once
    assert settings.size == 2 and set(program.references) & set(settings.systems)
    for system in settings.systems:
        config.read(program.systems[system])  # raises for a wrong variable


def test_without_a_checkout_a_case_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (case,) = chosen(["outside-param"])
    refused = missing(case.parsed())
    assert refused is not None and "outside/param has no train/comms/pt/comms.py of https" in refused.problem
    assert refused.remedy.startswith(
        "Run `git clone --depth 1 https://github.com/facebookresearch/param outside/param`"
    )
    there = tmp_path / "mine" / sources.PARAM.files[0]
    there.parent.mkdir(parents=True)
    there.touch()
    assert missing(case.with_settings([f"folder={tmp_path / 'mine'}"]).parsed()) is None
    lacking = sources.Source("x", "https://x", "MIT", (), "", ("no_such_package",))
    with pytest.raises(UserError, match="needs the package no_such_package"):
        lacking.find(str(tmp_path))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"program": "parm"}, "Did you mean param?"),
        ({"program": "param", "systems": ("rin",)}, "Did you mean ring?"),
        ({"program": "param", "hosts": 2, "ranks": 3}, "cannot be divided evenly among 2 hosts"),
        ({"program": "param", "steps": 0}, "steps=0 measures nothing"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError) as refused:
        checked(Settings(**settings))
    assert said in str(refused.value)


def test_param_gets_its_sizes_and_its_lines_are_read() -> None:
    run = run_of("param", "ring", inputs=("4KiB", "1MiB"))
    words = json.loads(PROGRAMS["param"].command(run)[-1])
    assert words[words.index("--sizes") + 1] == "4096,1048576" and words[words.index("--backend") + 1] == "horovod"
    assert "gloo" in json.loads(PROGRAMS["param"].command(run_of("param", "gloo"))[-1])
    line = "\tCOMMS-RES-all_reduce-float32{:>18}{:>18}{:>18}{:>12}{:>12}{:>12}{:>12}{:>15}{:>12}{:>20}"
    printed = "\n".join(
        line.format(size, size // 4, time_us, *["9.0"] * 4, "0.1", "0.1", "0.0")
        for size, time_us in ((4096, "310.5"), (1048576, "44000.0"))
    )
    assert PROGRAMS["param"].read(run, f"Hello\n{printed}\n") == {
        "all_reduce of 4KiB": {"time_ms": 0.3105},
        "all_reduce of 1MiB": {"time_ms": 44.0},
    }
    with pytest.raises(UserError, match="printed no result"):
        PROGRAMS["param"].read(run, "Hello")


def test_gloo_gets_elements_and_the_median_is_read() -> None:
    run = run_of("gloo", "gloo_new_allreduce_ring", inputs=("4KiB",))
    words = json.loads(PROGRAMS["gloo"].command(run)[-1])
    assert words[words.index("--elements") + 1] == "1024" and words[-1] == "new_allreduce_ring"
    header = "   size (B)   elements   min (us)   p50 (us)   p99 (us)   max (us)   bandwidth (GB/s)   iterations"
    row = "       4096       1024        190        205        400        512              0.018           20"
    assert PROGRAMS["gloo"].read(run, f"{header}\n{row}\n") == {"allreduce of 4KiB": {"time_ms": 0.205}}


def test_horovods_examples_get_steps_and_their_speed_is_read() -> None:
    run = run_of("horovod_torch", "stock", warm_up=40, steps=20)
    words = PROGRAMS["horovod_torch"].command(run)
    assert words[2] == "/checkout/examples/pytorch/pytorch_synthetic_benchmark.py"
    assert words[words.index("--num-iters") + 1] == "2" and words[words.index("--num-warmup-batches") + 1] == "40"
    keras = PROGRAMS["horovod_keras"].command(run_of("horovod_keras", "stock", steps=30))
    assert keras[keras.index("--num-iters") + 1] == "4", "the first is its warm-up"
    output = "Batch size: 4\nImg/sec per CPU: 8.0 +-0.3\nTotal img/sec on 2 CPU(s): 16.0 +-0.6\n"
    (figures,) = PROGRAMS["horovod_torch"].read(run, output).values()
    assert figures == {"time_ms": 500.0, "images_per_s": 8.0}


def test_sizes_of_kungfus_models_are_read(tmp_path: Path) -> None:
    path = tmp_path / sources.KUNGFU.files[0]
    path.parent.mkdir(parents=True)
    path.write_text("package fakemodel\n\nvar resnet50Imagenet = []int{\n\t1000, 2048000,\n\t64,\n}\n")
    assert lists.kungfu(tmp_path, "resnet50") == [1000, 2048000, 64]
    words = PROGRAMS["kungfu"].command(run_of("kungfu", "torch", tmp_path, inputs=("resnet50",)))
    assert words[-1] == "1000,2048000,64" and "torch" in words
    output = 'RESULT {"times_ms": [3.0, 1.0, 2.0], "messages": 3}'
    title = "resnet50: 3 tensors, 8.2 MB"
    read = PROGRAMS["kungfu"].read(run_of("kungfu", "stock", tmp_path, inputs=("resnet50",)), output)
    assert read == {title: {"time_ms": 2.0, "messages": 3}}


def test_buckets_of_the_traces_first_step_are_read_in_order(tmp_path: Path) -> None:
    path = tmp_path / sources.PARAM_TRACE.files[0]
    path.parent.mkdir(parents=True)

    def node(number: int, name: str, *shape: int) -> dict[str, Any]:
        return {"id": number, "name": name, "inputs": {"shapes": [list(shape)]}}

    copied, sent = "torch::distributed::reducer::mul_out", "nccl:all_reduce"
    nodes = [
        node(9, sent, 7), node(1, "ProfilerStep#4"), node(5, sent, 2010), node(3, copied, 1000, 2), node(4, copied, 10),
        node(8, "ProfilerStep#5"), node(7, sent, 3),
    ]  # fmt: skip
    with gzip.open(path, "wt") as file:
        json.dump({"nodes": nodes}, file)
    assert lists.chakra(tmp_path, "buckets") == [2010, 3] and lists.chakra(tmp_path, "gradients") == [2000, 10]


def test_every_run_gives_each_table_a_value() -> None:
    program, settings = checked(Settings(program="param", systems=("stock", "ring"), inputs=("4", "8")))
    found = [{"a": {"time_ms": 1.0}, "b": {"time_ms": 3.0}}, {"a": {"time_ms": 2.0}, "b": {"time_ms": 6.0}}]
    turns = {name: [Turn({"time_ms": 4.0})] * 2 for name in settings.systems}
    total = Comparison(turns, "time_ms", each_over(settings.systems, ["stock"], "time_ms"))
    slower = [{title: {"time_ms": 2 * one["time_ms"]} for title, one in rows.items()} for rows in found]
    made = list(tables(program, settings, total, {"stock": found, "ring": slower}))
    assert [re.sub(":.*", "", one.title) for one in made] == ["PARAM comms.py, a", "PARAM comms.py, b"]
    assert all(one.comparison.value(one.comparison.ratios[0]).median == 2.0 for one in made)
