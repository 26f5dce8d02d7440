"""Measured networks as files, what is taken from them, and what is refused."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from paceline.collectives import network_file
from paceline.collectives.network_file import NetworkFile, Pair, Timing
from paceline.errors import UserError

HOSTS = ("a", "a", "b")


def measured() -> NetworkFile:
    """Two ranks on one host, where it is fast, and one on another."""
    pairs = [
        Pair(one, other, 1e-5 if HOSTS[one] == HOSTS[other] else 2e-3, 1e9 if HOSTS[one] == HOSTS[other] else 25e6)
        for one in range(3)
        for other in range(3)
        if one != other
    ]
    timings = [
        Timing("allreduce", name, size, seconds, seconds + 1e-3)
        for name, small_s, large_s in (("horovod", 8e-3, 0.06), ("ring", 9e-3, 0.05), ("doubling", 4e-3, 0.09))
        for size, seconds in ((4, small_s), (1 << 20, large_s))
    ]
    return NetworkFile("0.1.0", HOSTS, 1 << 18, tuple(pairs), tuple(timings))


def test_a_file_comes_back_as_it_was(tmp_path: Path) -> None:
    network_file.write(measured(), tmp_path / "network.json")
    assert network_file.load(tmp_path / "network.json") == measured()
    content = msgspec.json.decode((tmp_path / "network.json").read_bytes())
    assert (content["format"], content["version"], content["hosts"]) == ("paceline-network", 1, list(HOSTS))


def test_files_of_0_1_have_another_name_for_horovods_own_collective(tmp_path: Path) -> None:
    network_file.write(measured(), tmp_path / "network.json")
    old = (tmp_path / "network.json").read_text().replace('"horovod"', '"gloo"')
    (tmp_path / "network.json").write_text(old)
    assert '"gloo"' in old and network_file.load(tmp_path / "network.json") == measured()


def test_what_follows_from_a_file() -> None:
    network = measured()
    # Constants are those between hosts; without two hosts, the median of all pairs.
    assert (network.alpha_s, network.beta_s_per_byte) == pytest.approx((2e-3, 4e-8))
    alone = msgspec.structs.replace(network, hosts=("a", "a", "a"))
    assert alone.alpha_s == 2e-3 and alone.ranks == 3
    # The fastest is that of the nearest size.
    sizes = {0: "doubling", 4: "doubling", 100: "doubling", 1 << 20: "ring", 1 << 30: "ring"}
    assert {size: network.fastest("allreduce", size) for size in sizes} == sizes
    with pytest.raises(ValueError, match="no broadcast was measured"):
        network.fastest("broadcast", 4)
    assert network.samples("ring") == [(4.0, 9e-3), (float(1 << 20), 0.05)]
    assert network.samples("auto") == [(4.0, 4e-3), (float(1 << 20), 0.05)]


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
