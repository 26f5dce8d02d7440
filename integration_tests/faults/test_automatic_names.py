"""Operations without a name match on every rank, with any process sets.

Patch automatic-names, second part: its count was shared by all process sets, so members of one set were ahead of the
others. (First part, uneven joins: test_patches.py.) Patch graph-names: the same in graphs of TensorFlow, where the
second operation on a tensor has another name than the first.
"""

from __future__ import annotations

import pytest

from integration_tests.support.ranks import ranks


@pytest.mark.patch("automatic-names")
@ranks(3, fresh=True)
def test_unnamed_operations_on_sets_and_on_all(rank: int, size: int) -> None:
    import horovod.torch as hvd
    import torch

    pair = hvd.ProcessSet([0, 1])
    hvd.init(process_sets=[pair])
    one = torch.tensor([rank + 1])
    if rank < 2:
        assert hvd.allreduce(one, op=hvd.Sum, process_set=pair).item() == 3
        assert hvd.allgather(one, process_set=pair).tolist() == [1, 2]
        assert hvd.broadcast(one, 1, process_set=pair).item() == 2
        assert hvd.grouped_allreduce([one, 2 * one], op=hvd.Sum, process_set=pair)[1].item() == 6
    assert hvd.allreduce(one, op=hvd.Sum).item() == 6
    assert hvd.allgather(one).tolist() == [1, 2, 3]
    assert hvd.broadcast(one, 2).item() == 3
    assert hvd.grouped_allreduce([one, 2 * one], op=hvd.Sum)[1].item() == 12


@pytest.mark.patch("automatic-names")
@ranks(3, fresh=True)
def test_unnamed_operations_on_a_set_that_has_anothers_id(rank: int, size: int) -> None:
    import horovod.torch as hvd
    import torch

    hvd.init(process_sets="dynamic")
    first = hvd.add_process_set([0, 1])
    if rank < 2:
        hvd.allreduce(torch.ones(2), process_set=first)
    number = first.process_set_id
    hvd.remove_process_set(first)
    second = hvd.add_process_set([1, 2])
    assert second.process_set_id == number
    if rank > 0:
        assert hvd.allreduce(torch.tensor(rank), op=hvd.Sum, process_set=second).item() == 3


@pytest.mark.patch("graph-names")
@ranks(3, fresh=True)
def test_unnamed_operations_on_sets_and_on_all_in_a_graph(rank: int, size: int) -> None:
    import horovod.tensorflow as hvd
    import tensorflow as tf

    pair = hvd.ProcessSet([0, 1])
    hvd.init(process_sets=[pair])

    def everything(x: tf.Tensor, process_set: hvd.ProcessSet) -> list[tf.Tensor]:
        return [
            hvd.allreduce(x, op=hvd.Sum, process_set=process_set),
            *hvd.grouped_allreduce([x, x], op=hvd.Sum, process_set=process_set),
            hvd.allgather(x, process_set=process_set),
            *hvd.grouped_allgather([x, x], process_set=process_set),
            hvd.broadcast(x, 1, process_set=process_set),
            hvd.alltoall(x, process_set=process_set),
            hvd.reducescatter(x, op=hvd.Sum, process_set=process_set),
            *hvd.grouped_reducescatter([x, x], op=hvd.Sum, process_set=process_set),
        ]

    @tf.function
    def step(x: tf.Tensor) -> list[tf.Tensor]:
        of_pair = everything(x, pair) if rank < 2 else []
        return [*of_pair, *everything(x, hvd.global_process_set)]

    found = step(tf.fill([6], float(rank)))
    assert len(found) == (22 if rank < 2 else 11)
    assert found[-11].numpy().tolist() == [3.0] * 6
    assert found[0].numpy().tolist() == [1.0 if rank < 2 else 3.0] * 6
