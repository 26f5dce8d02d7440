"""Local and cross ranks, compared with Horovod's own assignment."""

from __future__ import annotations

import pytest

from paceline.launch.rank.placement import Slot, Task, place


@pytest.mark.parametrize("slots", [[1], [3], [2, 2], [1, 3], [2, 1, 3]])
def test_places_are_horovods_where_ranks_fill_one_host_after_the_other(slots: list[int]) -> None:
    from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts

    size = sum(slots)
    theirs = get_host_assignments(parse_hosts(",".join(f"h{at}:{n}" for at, n in enumerate(slots))), size)
    hosts = [f"h{at}" for at, n in enumerate(slots) for _ in range(n)]
    ours = place([Task(rank, host, "m") for rank, host in enumerate(hosts)][::-1])
    assert [vars_of(slot) for slot in ours] == [vars(slot) for slot in theirs]


def vars_of(slot: Slot) -> dict[str, object]:
    return {name: getattr(slot, name) for name in slot.__struct_fields__}


def test_ranks_that_go_round_the_hosts() -> None:
    slots = place([Task(rank, f"h{rank % 2}", "m") for rank in range(5)])
    assert [(one.local_rank, one.local_size, one.cross_rank, one.cross_size) for one in slots] == [
        (0, 3, 0, 2),
        (0, 2, 1, 2),
        (1, 3, 0, 2),
        (1, 2, 1, 2),
        (2, 3, 0, 1),
    ]


def test_the_schedulers_local_ranks_count_where_they_are_whole() -> None:
    told = place([Task(0, "a", "m", 1), Task(1, "a", "m", 0)])
    assert [slot.local_rank for slot in told] == [1, 0]
    # In two containers on one host each is 0 to its own runtime.
    doubted = place([Task(0, "a", "m", 0), Task(1, "a", "m", 0)])
    assert [slot.local_rank for slot in doubted] == [0, 1]


def test_hosts_of_one_name_are_told_apart_by_their_machine() -> None:
    slots = place([Task(0, "localhost", "m1"), Task(1, "localhost", "m2")])
    assert [slot.hostname for slot in slots] == ["localhost", "localhost-2"]
    assert [slot.cross_size for slot in slots] == [2, 2]
