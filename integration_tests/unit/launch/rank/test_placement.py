"""Local and cross ranks, compared with Horovod's own assignment."""

from __future__ import annotations

import pytest
from msgspec import structs

from paceline.launch.rank.placement import Task, place


@pytest.mark.parametrize("slots", [[1], [3], [2, 2], [1, 3], [2, 1, 3]])
def test_places_are_horovods_where_ranks_fill_one_host_after_the_other(slots: list[int]) -> None:
    from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts

    size = sum(slots)
    theirs = get_host_assignments(parse_hosts(",".join(f"h{at}:{n}" for at, n in enumerate(slots))), size)
    hosts = [f"h{at}" for at, n in enumerate(slots) for _ in range(n)]
    ours = place([Task(rank, host, "m") for rank, host in enumerate(hosts)][::-1])
    assert [structs.asdict(slot) for slot in ours] == [vars(slot) for slot in theirs]


def test_other_orders_local_ranks_and_hosts_of_one_name() -> None:
    slots = place([Task(rank, f"h{rank % 2}", "m") for rank in range(5)])
    places = [(one.local_rank, one.local_size, one.cross_rank, one.cross_size) for one in slots]
    assert places == [(0, 3, 0, 2), (0, 2, 1, 2), (1, 3, 0, 2), (1, 2, 1, 2), (2, 3, 0, 1)]
    # The scheduler's local ranks count where they are whole; in two containers on one host each is 0 to its runtime.
    assert [slot.local_rank for slot in place([Task(0, "a", "m", 1), Task(1, "a", "m", 0)])] == [1, 0]
    assert [slot.local_rank for slot in place([Task(0, "a", "m", 0), Task(1, "a", "m", 0)])] == [0, 1]
    # Machines tell hosts of one name apart.
    slots = place([Task(0, "localhost", "m1"), Task(1, "localhost", "m2")])
    assert [(slot.hostname, slot.cross_size) for slot in slots] == [("localhost", 2), ("localhost-2", 2)]
