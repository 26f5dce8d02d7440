"""`paceline probe`: sizes, buffers, from rounds to a pair, what is shown, what is refused."""

from __future__ import annotations

import io

import numpy as np
import pytest
from click.testing import CliRunner
from matplotlib.figure import Figure
from rich.console import Console

from integration_tests.unit.collectives.test_network_file import measured
from paceline.errors import UserError
from paceline.launch.probe import plot
from paceline.launch.probe.buffers import Buffers, Case
from paceline.launch.probe.command import probe_command
from paceline.launch.probe.rank import pairs_of
from paceline.launch.quantities import size_bytes, size_name, sizes_bytes


def test_a_pair_has_what_a_short_message_takes_and_the_rest_of_a_long_one_as_bandwidth() -> None:
    there, back = pairs_of(0, 2, 0.002, 0.042, 1_000_008)
    assert there.latency_s == 0.002 and there.bytes_per_s == pytest.approx(25e6)
    assert (there.sender, there.receiver, back.sender, back.receiver) == (0, 2, 2, 0)
    assert (back.latency_s, back.bytes_per_s) == (there.latency_s, there.bytes_per_s)
    # A long message may seem to take no longer than a short one.
    assert pairs_of(0, 1, 0.004, 0.003, 4096)[0].bytes_per_s > 0


def test_tables_show_pairs_and_mark_what_is_fastest() -> None:
    output = io.StringIO()
    for table in plot.tables(measured()):
        Console(file=output, width=120).print(table)
    text = output.getvalue()
    assert "2000, 25" in text and "10, 1000" in text and "2000 us + 40 ms/MB" in text
    assert "allreduce among 3 ranks" in text and "50 (51)" in text and "1MiB" in text


def test_the_picture_has_a_map_of_each() -> None:
    figure = plot.figure(measured())
    assert isinstance(figure, Figure)
    left, right = figure.axes[:2]
    assert [left.get_title(loc="left"), right.get_title(loc="left")] == ["latency, us", "bandwidth, MB/s"]
    latency_us, bandwidth = (axes.images[0].get_array() for axes in (left, right))
    assert latency_us is not None and latency_us[0, 2] == pytest.approx(2000)
    assert bandwidth is not None and bandwidth[2, 1] == 25
    assert len(left.texts) == 6


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-np", "1"], "cannot be measured on one rank"),
        (["-np", "2", "python", "train.py"], "runs a program of its own, not python"),
        (["-np", "2", "--sizes", "5"], "The size '5' cannot be used"),
        (["-np", "2", "--pair-size", "0"], "The size '0' cannot be used"),
        (["-np", "2", "--pair-size", "8"], "--pair-size 8 cannot be used"),
        (["-np", "2", "-o", "/nowhere/network.json"], "The folder /nowhere of the network file"),
        (["-np", "2", "--plot", "network.odd"], "cannot be drawn"),
        ([], "-np/--num-proc"),
    ],
)
def test_bad_input_is_named(arguments: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        CliRunner().invoke(probe_command, arguments, catch_exceptions=False)


@pytest.mark.parametrize("operation", ["broadcast", "reduce", "allreduce"])
def test_wrong_results_are_found(operation: str) -> None:
    root, other = Buffers(Case(operation, 64, 2), 0, 3), Buffers(Case(operation, 64), 2, 3)
    assert [array.size for array in root.arrays] == [16, 16]
    for one in (root, other):
        one.fill()
    right = 1 if operation == "broadcast" else 6
    for array in (*root.arrays, *other.arrays):
        array.fill(right)
    root.check()
    other.check()
    root.arrays[1][3] = 2
    with pytest.raises(ValueError, match=f"{operation} of 64 bytes on rank 0: element 3 is 2.0"):
        root.check()
    other.arrays[0][:] = np.inf
    if operation == "reduce":
        other.check()  # only the root has a result
    else:
        with pytest.raises(ValueError, match="on rank 2"):
            other.check()
    # A model has a buffer for each tensor.
    assert [array.nbytes for array in Buffers(Case("broadcast", 12, 1, (4, 8)), 0, 2).arrays] == [4, 8]


def test_sizes_are_read() -> None:
    for text, bytes_ in {"4": 4, "4KiB": 4096, "1.5 MiB": 3 << 19, "64MB": 64_000_000}.items():
        assert size_bytes(text) == bytes_ and size_bytes(size_name(bytes_)) == bytes_
    assert sizes_bytes("4,4KiB,4096") == (4, 4096) and (size_name(4096), size_name(100)) == ("4KiB", "100")
    for text in ("6", "4furlong"):
        with pytest.raises(UserError, match=f"The size '{text}' cannot be used"):
            size_bytes(text)
