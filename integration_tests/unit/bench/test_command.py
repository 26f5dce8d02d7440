"""`python -m examples.benchmarks` refuses what it cannot use before anything is started."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner

from paceline.errors import UserError
from paceline.examples.benchmarks.commands import command as bench_module
from paceline.examples.benchmarks.commands.options import Request
from paceline.examples.benchmarks.harness import systems
from paceline.examples.benchmarks.harness.hosts import interface_of
from paceline.examples.benchmarks.harness.ratios import Ratio


def bench(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "paceline.examples.benchmarks", name, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--hosts", "0"], "--hosts 0"),
        (["--hosts", "3", "--np", "4"], "--np 4 cannot be used with --hosts 3"),
        (["--hosts", "1", "--np", "0"], "--np 0"),
        (["--time-limit-s", "0"], "--time-limit-s 0"),
        (["--time-limit-s", "nan"], "--time-limit-s nan"),
        (["--time-limit-s", "inf"], "--time-limit-s inf"),
        (["--turns", "0"], "--turns 0"),
        (["--model", "mini", "--model", "resnet51"], "Did you mean resnet50?"),
        (["--hosts", "2", "--rate", "fast"], "'fast'"),
        (["--hosts", "2", "--latency", "2"], "The latency '2' cannot be used: it has no unit"),
        (["--hosts", "1", "--latency", "2ms"], "--latency 2ms cannot be used with --hosts 1"),
    ],
)
def test_bad_input_is_named_without_a_traceback(arguments: list[str], said: str) -> None:
    done = bench("baseline", *arguments)
    assert done.returncode == 2 and said in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--hosts", "1", "--np", "1"], "--np 2 or more"),
        (["--policy", "optimum"], "Did you mean optimal?"),
        (["--policy", "threshold"], "stock Horovod, which is always measured"),
        (["--policy", "no_such_module:policy"], "no_such_module"),
        (["--turns", "0"], "--turns 0"),
        (["--model", "resnet51"], "Did you mean resnet50?"),
    ],
)
def test_bad_input_of_fusion_is_named_without_a_traceback(arguments: list[str], said: str) -> None:
    done = bench("fusion", *arguments)
    assert done.returncode == 2 and said in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--hosts", "1", "--np", "1"], "--np 2 or more"),
        (["--communication-share", "0"], "--communication-share 0 cannot be used"),
        (["--communication-share", "nan"], "--communication-share nan cannot be used"),
        (["--communication-share", "0.3", "--rate", "1gbit"], "--rate 1gbit and --communication-share 0.3 are given"),
        (["--hosts", "2", "--rate", "fast"], "'fast'"),
        (["--model", "resnet20-rael"], "Did you mean resnet20-real?"),
        (["--model", "resnet20-real-x0.5"], "no model 'resnet20-real-x0.5'"),
    ],
)
def test_bad_input_of_pipelined_is_named_without_a_traceback(arguments: list[str], said: str) -> None:
    done = bench("pipelined", *arguments)
    assert done.returncode == 2 and said in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and done.stdout == ""


@pytest.mark.parametrize("name", ["baseline", "fusion", "pipelined"])
def test_help_names_the_models_and_the_limits(name: str) -> None:
    done = bench(name, "--help")
    assert done.returncode == 0 and "resnet50" in done.stdout and "--time-limit-s" in done.stdout
    assert "gradients of 438 and 553 MB" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "names", "wanted", "repeat"),
    [
        (
            [],
            ["stock", "ddp", "none", "single", "mgwfbp", "optimal", "alone"],
            ["optimal/stock", "optimal/ddp", "none/stock", "single/stock", "mgwfbp/stock"],
            "--policy none --policy single --policy mgwfbp --policy optimal",
        ),
        (
            ["--policy", "mgwfbp", "--policy", "none", "--policy", "mgwfbp"],
            ["stock", "ddp", "mgwfbp", "none", "alone"],
            ["none/stock", "none/ddp", "mgwfbp/stock"],
            "--policy mgwfbp --policy none",
        ),
        (
            ["--policy", "optimal", "--armed"],
            ["stock", "ddp", "armed_optimal", "alone"],
            ["armed_optimal/stock", "armed_optimal/ddp"],
            "--policy optimal --armed",
        ),
        (
            ["--policy", "optimal", "--armed", "--bucket-bytes", "65536"],
            ["stock", "ddp", "armed_optimal", "alone"],
            ["armed_optimal/stock", "armed_optimal/ddp"],
            "--policy optimal --armed --bucket-bytes 65536",
        ),
    ],
)
def test_fusion_compares_the_policies_with_stock_horovod_and_ddp(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], names: list[str], wanted: list[str], repeat: str
) -> None:
    asked: list[tuple[Request, list[systems.System], str, list[Ratio]]] = []
    monkeypatch.setattr(bench_module, "measure", lambda *given: asked.append(given))
    command = ["fusion", "--hosts", "1", "--model", "mini", "--time-limit-s", "7", *arguments]
    done = CliRunner().invoke(bench_module.bench_command, command, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    [(request, chosen, told, ratios)] = asked
    assert (request.hosts, request.ranks, request.models, request.time_limit_s) == (1, 2, ("mini",), 7.0)
    assert [system.name for system in chosen] == names
    assert [f"{ratio.system}/{ratio.references[0]}" for ratio in ratios] == wanted
    armed, buckets = "--armed" in arguments, "--bucket-bytes" in arguments
    for system in chosen[2:-1]:
        assert system.env["PACELINE_BUCKET_BYTES"] == ("65536" if buckets else "0")
        assert ("armed_" * armed) + system.env["PACELINE_FUSION"] == system.name
        assert system.env.get("PACELINE_ARMED") == ("yes" if armed else None)
        assert callable(systems.load(system.setup))
    assert chosen[0].env.get("PACELINE_WAKE") == ("cycle" if armed else None)
    assert chosen[0].env["PACELINE_BUCKET_BYTES"] == "0", "stock Horovod has none, whatever the environment says"
    assert told == (
        "python -m examples.benchmarks "
        f"fusion --hosts 1 --np 2 --rate 1gbit --model mini {repeat} --time-limit-s 7 --turns 200"
    )


@pytest.mark.parametrize(
    ("arguments", "rate", "share", "repeat"),
    [
        ([], None, 1.0, "--communication-share 1"),
        (["--communication-share", "0.3"], None, 0.3, "--communication-share 0.3"),
        (["--rate", "100mbit"], "100mbit", 1.0, "--rate 100mbit"),
        (["--rate", "100mbit", "--bucket-bytes", "65536"], "100mbit", 1.0, "--rate 100mbit"),
        (["--rate", "100mbit", "--latency", "500us"], "100mbit", 1.0, "--rate 100mbit --latency 500us"),
    ],
)
def test_pipelined_compares_the_exchange_with_its_rivals_and_with_the_longer_of_its_parts(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], rate: str | None, share: float, repeat: str
) -> None:
    asked: list[tuple[Request, list[systems.System], str, list[Ratio]]] = []
    monkeypatch.setattr(bench_module, "measure", lambda *given: asked.append(given))
    done = CliRunner().invoke(bench_module.bench_command, ["pipelined", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    [(request, chosen, told, ratios)] = asked
    assert (request.hosts, request.ranks, request.rate, request.communication_share) == (4, 4, rate, share)
    assert request.models == ("resnet50-x0.02", "lstm-x0.01", "resnet20-real")
    assert f"--np 4 {repeat} --model" in told
    bucket_bytes = "65536" if "--bucket-bytes" in arguments else "0"
    assert ("--bucket-bytes" in told) == (bucket_bytes != "0")
    assert [system.env.get("PACELINE_BUCKET_BYTES") for system in chosen[2:5]] == [bucket_bytes] * 3
    assert [system.name for system in chosen] == [
        "stock", "ddp", "sync_optimal", "pipelined", "pipelined_optimal", "communication", "alone",
    ]  # fmt: skip
    assert [ratio.name for ratio in ratios] == [
        "pipelined_over_stock",
        "pipelined_over_ddp",
        "pipelined_over_sync_optimal",
        "pipelined_optimal_over_stock",
        "pipelined_optimal_over_sync_optimal",
        "measured_over_max_model",
        "optimal_measured_over_max_model",
        "communication_over_compute",
    ]
    assert {name for ratio in ratios for name in (ratio.system, *ratio.references)} == {one.name for one in chosen}
    # What is averaged is checked, a pipelined gradient one step later.
    ages = {system.name: system.age for system in chosen if system.averages}
    assert ages == {"stock": 0, "ddp": 0, "sync_optimal": 0, "pipelined": 1, "pipelined_optimal": 1}


def test_an_unknown_system_is_refused_with_the_nearest() -> None:
    with pytest.raises(UserError, match="Did you mean horovod"):
        systems.find("horovodd")


@pytest.mark.parametrize("name", systems.SYSTEMS)
def test_every_system_of_the_table_can_be_loaded(name: str) -> None:
    assert callable(systems.load(systems.find(name).setup))


def test_the_interface_of_an_address() -> None:
    assert interface_of("127.0.0.1") == "lo"
    with pytest.raises(UserError, match=r"No interface .* 192\.0\.2\.1\."):
        interface_of("192.0.2.1")  # reserved for documents
