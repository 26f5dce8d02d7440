"""Trainings that Ray and Spark start, as drivers run them: `python -m integration_tests.support.engine_jobs JOB ...`.

Jobs (see `main`) print one line of JSON that begins with RESULT. Gradients depend on no weight, and plain SGD adds them
up: once all have arrived, weights show which were lost or doubled, with any exchange.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from integration_tests.support.debug import debug

WORKERS = 2
STEPS = 12
RATE = 2.0**-6
SIZES = (1, 300, 5001)
SETTINGS: dict[str, dict[str, str]] = {
    "stock": {},
    "optimal": {"PACELINE_FUSION": "optimal", **debug(fusion_warmup_steps=2)},
    "pipelined": {"PACELINE_EXCHANGE": "pipelined"},
    "majority": {"PACELINE_EXCHANGE": "majority"},
}

# Of a test without a patch of Horovod, as its sessions begin: no setting of a training.
UNCHECKED = debug(check_horovod="no")


def gradient(rank: int, step: int, size: int) -> np.ndarray:
    """Gradient of one rank in one step: whole numbers, all different."""
    return (np.arange(size) % 13 + 16 * step + 512 * rank).astype("float64")


def off(weights: list[np.ndarray], ranks: int) -> float:
    """Largest deviation from the weights of one process, as a gradient."""
    wanted = [-RATE / ranks * sum(gradient(r, s, n) for r in range(ranks) for s in range(STEPS)) for n in SIZES]
    return max(float(abs(one - other).max()) for one, other in zip(weights, wanted)) / RATE


def exposed() -> bool:
    """Return True if a command line of this machine contains the job's key."""
    from horovod.runner.common.util import secret

    key = os.environ.get(secret.HOROVOD_SECRET_KEY)  # Spark's tasks have it
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if key is not None and key in path.read_text(errors="replace"):
                return True
    return False


def report(hvd: Any, weights: list[np.ndarray]) -> dict[str, Any]:
    settings = {name: value for name, value in os.environ.items() if name.startswith("PACELINE_")}
    if settings.items() >= UNCHECKED.items():
        del settings["PACELINE_DEBUG"]
    found: dict[str, Any] = {"rank": hvd.rank(), "size": hvd.size(), "off": off(weights, hvd.size())}
    return found | {"settings": settings, "exposed": exposed()}


def die(hvd: Any, step: int, victim: int) -> None:
    """End this process in the middle of the training if it is the victim."""
    if step == STEPS // 2 and hvd.rank() == victim:
        os.kill(os.getpid(), signal.SIGKILL)


def train_torch(victim: int = -1) -> dict[str, Any]:
    """A training in PyTorch; rank `victim` is killed in it."""
    import torch

    import paceline.torch as hvd

    hvd.init()
    weights = [torch.nn.Parameter(torch.zeros(size, dtype=torch.float64)) for size in SIZES]
    named = [(f"weight.{number}", weight) for number, weight in enumerate(weights)]
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(weights, lr=RATE), named)
    for step in range(STEPS):
        die(hvd, step, victim)
        optimizer.zero_grad()
        parts = [(one * torch.from_numpy(gradient(hvd.rank(), step, size))).sum() for one, size in zip(weights, SIZES)]
        torch.stack(parts).sum().backward()
        optimizer.step()
    optimizer.drain()
    return report(hvd, [one.detach().numpy() for one in weights])


def train_keras(victim: int = -1) -> dict[str, Any]:
    import keras
    import tensorflow as tf

    import paceline.keras as hvd

    hvd.init()
    weights = [keras.Variable(np.zeros(size), dtype="float64") for size in SIZES]
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(RATE))
    for step in range(STEPS):
        die(hvd, step, victim)
        optimizer.apply([tf.constant(gradient(hvd.rank(), step, size)) for size in SIZES], weights)
    optimizer.drain()
    return report(hvd, [np.asarray(one) for one in weights])


def train_elastic(killed: str) -> dict[str, Any]:
    """Train with PyTorch and continue after rank 1 is killed, which happens if there is no file `killed` yet."""
    import torch

    import paceline.torch as hvd

    hvd.init()
    weight = torch.nn.Parameter(torch.zeros(300, dtype=torch.float64))
    model = torch.nn.ParameterList([weight])
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], lr=RATE), [("weight", weight)])
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0)

    @hvd.elastic.run
    def train(state: Any) -> None:
        while state.step < STEPS:
            if hvd.rank() == 1 and state.step == STEPS // 2 and not Path(killed).exists():
                Path(killed).touch()
                os.kill(os.getpid(), signal.SIGKILL)
            optimizer.zero_grad()
            (weight * torch.full((300,), 16.0 * state.step, dtype=torch.float64)).sum().backward()
            optimizer.step()
            state.step += 1
            state.commit()

    train(state)
    optimizer.drain()
    wanted = -RATE * sum(16.0 * step for step in range(STEPS))
    found = float(abs(weight.detach() - wanted).max()) / RATE
    return {"rank": hvd.rank(), "size": hvd.size(), "off": found, "exposed": exposed()}


TRAININGS: dict[str, Callable[..., dict[str, Any]]] = {"torch": train_torch, "keras": train_keras}


@contextlib.contextmanager
def ray_cluster(nodes: int) -> Iterator[None]:
    """A Ray cluster of `nodes` nodes on this machine: the first has its own address, the others loopback addresses."""
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": WORKERS if nodes == 1 else 1})
    try:
        for number in range(2, nodes + 1):
            cluster.add_node(num_cpus=1, node_ip_address=f"127.0.0.{number}")
        ray.init(address=cluster.address)
        yield
    finally:
        ray.shutdown()
        cluster.shutdown()


def on_ray(train: Callable[..., Any], arguments: list[Any], **workers: Any) -> list[Any]:
    from horovod.ray import RayExecutor

    # One machine: finding the interface that hosts share would need two.
    executor = RayExecutor(RayExecutor.create_settings(timeout_s=200, nics={"lo"}), **workers)
    executor.start()
    try:
        found: list[Any] = executor.run(train, args=arguments)
        return found
    finally:
        executor.shutdown()


@contextlib.contextmanager
def spark_session(master: str) -> Iterator[None]:
    """A Spark on this machine, whose tasks have this Python."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    session = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    try:
        yield
    finally:
        session.stop()


def on_spark(train: Callable[..., Any], arguments: list[Any], **workers: Any) -> list[Any]:
    import horovod.spark

    elastic = "min_num_proc" in workers
    run = horovod.spark.run_elastic if elastic else horovod.spark.run
    found: list[Any] = run(train, args=tuple(arguments), verbose=1, nics={"lo"}, **workers)
    return found


ENGINES: dict[str, tuple[Callable[[], Any], Callable[..., list[Any]], dict[str, Any]]] = {
    "ray": (lambda: ray_cluster(1), on_ray, {"num_workers": WORKERS}),
    "spark": (lambda: spark_session(f"local[{WORKERS}]"), on_spark, {"num_proc": WORKERS, "use_gloo": True}),
}
ELASTIC: dict[str, tuple[Callable[[], Any], Callable[..., list[Any]], dict[str, Any]]] = {
    "ray": (lambda: ray_cluster(3), on_ray, {"min_workers": 2, "max_workers": 3, "gpus_per_worker": 0}),
    "spark": (lambda: spark_session("local[3,4]"), on_spark, {"num_proc": 3, "min_num_proc": 2, "max_num_proc": 3}),
}


def main(job: str, engine: str, framework: str) -> None:
    """`job`: settings (all of them in turn), killed, or elastic."""
    session, run, workers = (ELASTIC if job == "elastic" else ENGINES)[engine]
    with session():
        if job == "elastic":
            with tempfile.TemporaryDirectory() as folder:
                found: Any = run(train_elastic, [f"{folder}/killed"], **workers)
        elif job == "killed":
            found = run(TRAININGS[framework], [1], **workers)
        else:
            found = {}
            for name, settings in SETTINGS.items():
                os.environ.update(settings)  # in the driver alone, whose session began without them
                found[name] = run(TRAININGS[framework], [], **workers)
                for setting in settings:
                    del os.environ[setting]
    print(f"RESULT {json.dumps(found)}", flush=True)


if __name__ == "__main__":
    # By their real name, so that workers can import the functions that they receive.
    from integration_tests.support import engine_jobs

    engine_jobs.main(*sys.argv[1:])
