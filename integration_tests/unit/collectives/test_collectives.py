"""Bounds of collectives, hvd.reduce, and measured networks: their files and what one rank sees of them."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from integration_tests.support.networks import network
from paceline import config
from paceline.collectives import network_file, probed
from paceline.collectives.bounds import ENCODED, Message, bound_s, bus_factor, known
from paceline.collectives.network_file import NetworkFile, Pair, Timing
from paceline.collectives.probed import Place
from paceline.collectives.reduce import check
from paceline.errors import UserError
from paceline.registry.codecs import CODECS

BYTES_PER_S = 25e6  # 200 Mbit/s
SIZE = 50_000_000  # two seconds on the wire


@pytest.mark.parametrize(
    ("operation", "collective", "ranks", "seconds", "starts"),
    [
        ("broadcast", "linear", 4, 2.0, 3),
        ("broadcast", "linear", 8, 2.0, 7),
        ("reduce", "linear", 4, 2.0, 3),
        ("broadcast", "tree", 4, 4.0, 2),
        ("broadcast", "tree", 5, 6.0, 3),
        ("allreduce", "ring", 4, 3.0, 6),
        ("allreduce", "direct", 4, 3.0, 2),
        ("allreduce", "doubling", 4, 4.0, 2),
        ("allreduce", "doubling", 5, 8.0, 4),
        ("allreduce", "linear", 4, 4.0, 6),
        ("allreduce", "linear", 2, 2.0, 2),
        ("reduce_beside_broadcast", "linear", 2, 2.0, 1),
        ("reduce_beside_broadcast", "linear", 4, 4.0, 3),
    ],
)
def test_bounds_by_hand(operation: str, collective: str, ranks: int, seconds: float, starts: int) -> None:
    message = Message(ranks, SIZE)
    assert bound_s(operation, collective, message, BYTES_PER_S) == pytest.approx(seconds, rel=1e-6)
    with_latency_s = bound_s(operation, collective, message, BYTES_PER_S, latency_s=0.002)
    assert with_latency_s == pytest.approx(seconds + starts * 0.002, rel=1e-6)


def test_blocks_fill_a_chain_codecs_shorten_the_wire_and_one_rank_has_nothing_to_do() -> None:
    # Two ranks in between pass on a tenth of the message before the last one gets its first.
    blocks = Message(4, SIZE, SIZE / 10)
    assert bound_s("broadcast", "linear", blocks, BYTES_PER_S) == pytest.approx(2.0 * 1.2)
    assert bound_s("allreduce", "linear", blocks, BYTES_PER_S) == pytest.approx(4.0 * 1.2)
    # A block that is longer than the message is the message.
    assert bound_s("broadcast", "linear", Message(4, SIZE, 10 * SIZE), BYTES_PER_S) == pytest.approx(2.0 * 3)
    # A codec shortens the wire and not the start ups.
    plain, encoded = (bound_s("allreduce", "ring", Message(4, SIZE), BYTES_PER_S, 0.01, one) for one in ("none", "q8"))
    assert encoded - 0.06 == pytest.approx((plain - 0.06) * ENCODED["q8"])
    assert 0.25 < ENCODED["q8"] < 0.26 and set(ENCODED) == set(CODECS)
    # One rank has nothing to do and unknown ones no bound.
    assert bound_s("allreduce", "ring", Message(1, SIZE), BYTES_PER_S, 0.01) == 0
    assert known("reduce", "linear") and not known("reduce", "tree") and not known("allreduce", "")
    assert bus_factor("allreduce", 4) == 1.5 and bus_factor("broadcast", 4) == bus_factor("reduce", 2) == 1


HOROVOD = SimpleNamespace(
    Average=0, Sum=1, Adasum=2, Min=3, Max=4, Product=5, is_initialized=lambda: True, rank=lambda: 4
)
SET = SimpleNamespace(ranks=[1, 4, 6], included=lambda: True)


def _check(root_rank: Any = 4, op: int = 0, process_set: Any = SET) -> Any:
    return check(HOROVOD, "loss", root_rank, op, 0.5, 6.0, process_set)


@pytest.mark.parametrize("collective", [None, "horovod", "linear", "auto"])
def test_the_root_counts_in_the_process_set(monkeypatch: pytest.MonkeyPatch, collective: str | None) -> None:
    monkeypatch.delenv("PACELINE_CODEC", raising=False)
    monkeypatch.delenv("PACELINE_COLLECTIVE", raising=False)
    if collective is not None:
        monkeypatch.setenv("PACELINE_COLLECTIVE", collective)
    config.begin()
    own = "\x7fpaceline." if collective in ("linear", "auto") else ""
    assert _check(4).operation(on_cpu=True) == f"{own}reduce.1.loss" and _check(4).at_root
    assert _check(6).operation(on_cpu=True) == f"{own}reduce.2.loss" and not _check(6).at_root
    assert _check(6).operation(on_cpu=False) == "reduce.2.loss"


def test_gradients_of_averages_and_sums_and_operations_that_are_refused() -> None:
    assert _check(op=HOROVOD.Average).gradient_scale() == 1.0
    assert _check(op=HOROVOD.Sum).gradient_scale() == 3.0
    for op in (HOROVOD.Min, HOROVOD.Max, HOROVOD.Product):
        with pytest.raises(ValueError, match="'loss' has no gradient"):
            _check(op=op).gradient_scale()
    # What cannot be is refused.
    with pytest.raises(ValueError, match=r"op=2\.\nUse one of hvd.Average, hvd.Sum"):
        _check(op=HOROVOD.Adasum)
    outside = SimpleNamespace(ranks=[1, 6], included=lambda: False)
    with pytest.raises(ValueError, match=r"rank 4 is not a member of the process set \[1, 6\]"):
        _check(6, process_set=outside)


@pytest.mark.parametrize("root_rank", [0, 3, -1, True, "4", None])
def test_a_root_outside_the_set_is_refused(root_rank: Any) -> None:
    with pytest.raises(ValueError) as caught:
        _check(root_rank)
    problem, remedy = str(caught.value).split("\n")
    assert "'loss' on rank 4: expected root_rank among the ranks [1, 4, 6]" in problem
    assert problem.endswith(f"found {root_rank!r}.") and "hvd.rank()" in remedy


HOSTS = ("a", "a", "b")


def measured() -> NetworkFile:
    """Two ranks on one host, where it is fast, and one on another."""
    near, far = (1e-5, 1e9), (2e-3, 25e6)
    pairs = [
        Pair(one, other, *(near if HOSTS[one] == HOSTS[other] else far))
        for one, other in itertools.permutations(range(3), 2)
    ]
    timings = [
        Timing("allreduce", name, size, seconds, seconds + 1e-3)
        for name, small_s, large_s in (("horovod", 8e-3, 0.06), ("ring", 9e-3, 0.05), ("doubling", 4e-3, 0.09))
        for size, seconds in ((4, small_s), (1 << 20, large_s))
    ]
    return NetworkFile("0.1.0", HOSTS, 1 << 18, tuple(pairs), tuple(timings))


def test_a_file_comes_back_as_it_was_also_one_of_0_1_with_another_name_for_horovods_own(tmp_path: Path) -> None:
    network_file.write(measured(), tmp_path / "network.json")
    assert network_file.load(tmp_path / "network.json") == measured()
    content = msgspec.json.decode((tmp_path / "network.json").read_bytes())
    assert (content["format"], content["version"], content["hosts"]) == ("paceline-network", 1, list(HOSTS))
    # Files of 0 1 have another name for horovods own collective.
    network_file.write(measured(), tmp_path / "network.json")
    old = (tmp_path / "network.json").read_text().replace('"horovod"', '"gloo"')
    (tmp_path / "network.json").write_text(old)
    assert '"gloo"' in old and network_file.load(tmp_path / "network.json") == measured()


def test_what_follows_from_a_file() -> None:
    found = measured()
    # Constants are those between hosts; without two hosts, the median of all pairs.
    assert (found.alpha_s, found.beta_s_per_byte) == pytest.approx((2e-3, 4e-8))
    alone = msgspec.structs.replace(found, hosts=("a", "a", "a"))
    assert alone.alpha_s == 2e-3 and alone.ranks == 3
    # The fastest is that of the nearest size.
    sizes = {0: "doubling", 4: "doubling", 100: "doubling", 1 << 20: "ring", 1 << 30: "ring"}
    assert {size: found.fastest("allreduce", size) for size in sizes} == sizes
    with pytest.raises(ValueError, match="no broadcast was measured"):
        found.fastest("broadcast", 4)
    assert found.samples("ring") == [(4.0, 9e-3), (float(1 << 20), 0.05)]
    assert found.samples("auto") == [(4.0, 4e-3), (float(1 << 20), 0.05)]
    # A message between two ranks.
    pair = network(["a", "b"], {}, latency_s=0.25, bytes_per_s=8.0)
    assert pair.message_s(1, 0, 4) == 0.75
    with pytest.raises(ValueError, match="nothing was measured from rank 1 to rank 2 of 2"):
        pair.message_s(1, 2, 4)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file"),
        (b"{", "cannot be used"),
        (b'{"format": "paceline-trace"}', "Invalid value"),
        (msgspec.json.encode(msgspec.to_builtins(measured()) | {"version": 2}), "version"),
        (msgspec.json.encode(msgspec.to_builtins(measured()) | {"hosts": ["a", "b"]}), "2 ranks need 2 pairs"),
        (msgspec.json.encode(msgspec.to_builtins(measured()) | {"hosts": ["a"], "pairs": []}), "1 ranks need 0 pairs"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "network.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=said) as caught:
        network_file.load(path)
    assert str(path) in caught.value.problem and "paceline probe" in caught.value.remedy


@pytest.mark.parametrize(
    ("fastest", "said"),
    [
        (["ring"] * 28, "all by ring"),
        (["doubling"] + ["ring"] * 27, "below 8 bytes doubling, above ring"),
        (["a"] * 8 + ["b"] * 3 + ["c"] * 17, "below 1 KiB a, below 8 KiB b, above c"),
        (["direct"] * 27 + ["ring"], "below 512 MiB direct, above ring"),
        (["a", "b"] * 2, "below 8 bytes a, below 16 bytes b, below 32 bytes a, above b"),
    ],
)
def test_ranges(fastest: list[str], said: str) -> None:
    assert probed.ranges(fastest) == said


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (Place(0, 3, 0, 2), ""),
        (Place(2, 3, 1, 2), ""),
        (Place(1, 3, 0, 1), ""),
        (Place(1, 3, 1, 2), "rank 1 was number 0 of 1 ranks on its host, and is number 1 of 2 now"),
        (Place(1, 2, 0, 1), "among 3 ranks on 2 hosts, and this job has 2 ranks"),
    ],
)
def test_places(place: Place, said: str) -> None:
    assert probed.mismatch(network(["a", "b", "a"], {}), place) == said
