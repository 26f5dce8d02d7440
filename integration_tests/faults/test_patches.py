"""One regression test for each patch of Horovod (plugin/horovod/patches/table.py); all fail on a Horovod without it.

`make patches` shows that: it builds such a Horovod and runs these tests expecting failures.
"""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from integration_tests.support.debug import debug
from integration_tests.support.more import more
from integration_tests.support.ranks import ranks, run_ranks

# --- stall-inspector: global_ranks_ was reserved and written through data(), so its size stayed 0 (horovod#2839).


def _stall(rank: int, size: int, log: str) -> None:
    import horovod.torch as hvd
    import torch

    if rank == 0:
        # Horovod's C++ log is written to file descriptor 2.
        os.dup2(os.open(f"{log}", os.O_CREAT | os.O_WRONLY), 2)
    hvd.init()
    if rank == size - 1:
        time.sleep(15)
    # HorovodInternalError once the stall limit has passed, on every rank, the sleeper included.
    with pytest.raises(hvd.HorovodInternalError):
        hvd.allreduce(torch.zeros(3), name="stalled")


@pytest.mark.patch("stall-inspector")
@pytest.mark.parametrize("size", [more(2), more(3)])
def test_sleeping_rank_is_reported_by_number(size: int, tmp_path: Path) -> None:
    limits = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "2", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "5"}
    log = tmp_path / "log"
    run_ranks(_stall, size, str(log), env=limits, fresh=True)
    text = log.read_text()
    assert f"Missing ranks:\n{size - 1}: [allreduce.stalled]" in text
    assert "stalled for longer than 5 seconds. Will shutdown." in text


# --- rendezvous-scopes: the end of one scope made the server forget who had finished in all others.


@pytest.mark.patch("rendezvous-scopes")
def test_a_finished_scope_does_not_disturb_the_others() -> None:
    from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
    from horovod.runner.http.http_server import RendezvousServer

    server = RendezvousServer()
    port = server.start()
    server.init(get_host_assignments(parse_hosts("a:1,b:1"), 2))

    def ask(verb: str, path: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request(verb, path, b"x" if verb == "PUT" else None)
        return connection.getresponse().status

    try:
        ask("PUT", "/global/0")
        ask("DELETE", "/global/0")  # rank 0 has finished with the scope of all ranks
        ask("DELETE", "/local_a/0")  # a scope of one rank is finished and cleared
        ask("DELETE", "/global/1")  # rank 1, too: now the scope of all ranks is finished
        assert ask("GET", "/global/0") == 404, "rank 0's old address is still there for the next round to read"
    finally:
        server.stop()


def _init_again(rank: int, size: int, rounds: int) -> None:
    import horovod.torch as hvd
    import torch

    for count in range(rounds):
        hvd.init()
        total = hvd.allreduce(torch.tensor([float(rank + count)]), op=hvd.Sum, name="round")
        assert total.item() == size * (size - 1) / 2 + size * count
        hvd.shutdown()
        if count % 10 == rank:
            time.sleep(0.05)  # ranks come back at different times


@pytest.mark.parametrize(
    ("rounds", "limit_s"), [(60, 120), pytest.param(1000, 1700, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])]
)
def test_shutdown_and_init_again(rounds: int, limit_s: float) -> None:
    run_ranks(_init_again, 2, rounds, timeout_s=limit_s, fresh=True)


# --- connect-exception: an exception in the background thread's set-up was std::terminate, exit code 134.

_LONELY = """
import time
import horovod.torch as hvd
for attempt in range(2):
    begin = time.monotonic()
    try:
        hvd.init()
    except ValueError as error:
        assert isinstance(error, hvd.HorovodInternalError)
        print(f"attempt {attempt}: {error}")
print("still here")
"""


@pytest.mark.patch("connect-exception")
def test_exception_while_connecting_reaches_python() -> None:
    from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
    from horovod.runner.gloo_run import create_run_env_vars, create_slot_env_vars
    from horovod.runner.http.http_server import RendezvousServer

    server = RendezvousServer()
    port = server.start()
    server.init([])
    slot, _ = get_host_assignments(parse_hosts("localhost:2"), 2)
    variables = {**create_run_env_vars("127.0.0.1", ["lo"], str(port)), **create_slot_env_vars(slot)}
    env = {**os.environ, **variables, "HOROVOD_GLOO_TIMEOUT_SECONDS": "2"}
    try:
        result = subprocess.run([sys.executable, "-c", _LONELY], env=env, capture_output=True, text=True, timeout=300)
    finally:
        server.stop()
    assert result.returncode == 0, result.stderr
    assert "still here" in result.stdout
    assert "Rank 0 of 2 could not connect" in result.stdout
    assert result.stdout.count("HOROVOD_GLOO_TIMEOUT_SECONDS=2") == 2  # the second init() tried again


# --- joined-devices: written past its end after a lower rank joined; the C library's checking malloc notices.


def _join_below(rank: int, size: int) -> None:
    import horovod.torch as hvd
    import torch

    hvd.init()
    for count in range(rank + 1):
        total = hvd.allreduce(torch.full((5,), float(rank + 1)), op=hvd.Sum, name=f"below{count}")
        assert total.tolist() == [float(sum(range(count + 1, size + 1)))] * 5
    hvd.join()


@pytest.mark.patch("joined-devices")
def test_joined_lower_ranks_leave_memory_intact() -> None:
    check = {"LD_PRELOAD": "libc_malloc_debug.so.0", "GLIBC_TUNABLES": "glibc.malloc.check=3"}
    run_ranks(_join_below, 3, env=check, fresh=True)


# --- automatic-names: the counter of all operations named unnamed ones, so ranks that did more waited for ever.


@pytest.mark.patch("automatic-names")
@ranks(3, more=(2, 4))
def test_unnamed_allreduce_after_uneven_join(rank: int, size: int) -> None:
    import horovod.torch as hvd
    import torch

    hvd.init()
    for batch in range(3 + 2 * rank):  # 3, 5, 7, ... batches; unnamed metrics as uneven as the gradients
        hvd.allreduce(torch.ones(4), name=f"gradient{batch % 2}")
        hvd.allreduce(torch.tensor(1.0))
    hvd.join()
    assert hvd.allreduce(torch.tensor(float(rank)), op=hvd.Sum).item() == size * (size - 1) / 2
    gathered = hvd.allgather(torch.tensor([rank]))
    assert gathered.tolist() == list(range(size))


# --- idle-waiting: threads that waited for a result yielded in a loop, which kept a core busy.


@pytest.mark.patch("idle-waiting")
@ranks(3, more=(2,))
def test_waiting_for_others_takes_no_processor_time(rank: int, size: int) -> None:
    import horovod.torch as hvd
    import torch

    hvd.init()
    hvd.allreduce(torch.ones(3), name="waiting.warm-up")
    if rank == size - 1:
        time.sleep(2)
    began_s = time.thread_time()
    hvd.allreduce(torch.ones(3), name="waiting")
    assert rank == size - 1 or time.thread_time() - began_s < 0.2


# --- gloo-ticks: the thread of each of Gloo's devices woke up every 10 ms.


def _switches() -> int:
    """Number of times that other threads of this process slept and were woken."""
    tasks = [task for task in Path("/proc/self/task").iterdir() if task.name != str(threading.get_native_id())]
    lines = [line for task in tasks for line in (task / "status").read_text().splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))


@pytest.mark.patch("gloo-ticks")
@ranks(2, more=(3,), env=debug(wake="events"))
def test_an_idle_rank_sleeps(rank: int, size: int) -> None:
    import horovod.torch as hvd

    hvd.init()
    hvd.barrier()
    seconds, before = 3.0, _switches()
    time.sleep(seconds)
    per_second = (_switches() - before) / seconds
    hvd.barrier()
    assert per_second < 20, f"{per_second:.0f} times a second"


# --- stateful-join: an operation without inputs and state is a constant to TensorFlow.


@pytest.mark.patch("stateful-join")
@ranks(3, more=(2,))
def test_every_join_of_tensorflow_asks_the_ranks(rank: int, size: int) -> None:
    import horovod.tensorflow as hvd
    import tensorflow as tf

    hvd.init()
    for epoch in range(3):
        for batch in range(1 + rank):
            found = hvd.allreduce(tf.fill([3], float(rank)), name="gradient", op=hvd.Sum)
            assert found.numpy().tolist() == [float(sum(range(batch, size)))] * 3, (epoch, batch)
        assert int(hvd.join()) in range(size)
        assert hvd.broadcast_object(epoch, 0) == epoch


# --- run-arguments: stray commas made two settings of horovod.run the tuple (None,).


def _tuning_variables() -> dict[str, str]:
    return {name: os.environ[name] for name in ("HOROVOD_CYCLE_TIME", "HOROVOD_CACHE_CAPACITY") if name in os.environ}


@pytest.mark.patch("run-arguments")
def test_horovod_run_sets_no_tuning_of_its_own() -> None:
    import horovod

    assert horovod.run(_tuning_variables, num_proc=2, use_gloo=True) == [{}, {}]


# --- zero-grad: torch's own default, set_to_none=True, was a TypeError when given (horovod#3405).


@pytest.mark.patch("zero-grad")
@ranks(2)
def test_zero_grad_takes_set_to_none(rank: int, size: int) -> None:
    import horovod.torch as hvd
    import torch

    hvd.init()
    model = torch.nn.Linear(3, 2)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1),
        named_parameters=[(f"zero_grad.{name}", parameter) for name, parameter in model.named_parameters()],
    )
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    assert all(parameter.grad is not None and not parameter.grad.any() for parameter in model.parameters())
    optimizer.zero_grad(set_to_none=True)
    assert all(parameter.grad is None for parameter in model.parameters())


# --- distutils: removed in Python 3.12.


@pytest.mark.patch("distutils")
def test_jsrun_support_needs_no_distutils() -> None:
    code = "import sys; sys.modules['distutils'] = None; import horovod.runner.js_run"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
