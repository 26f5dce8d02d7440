"""Edits of horovod.ray and horovod.spark, which start ranks themselves."""

from __future__ import annotations

from paceline.horovod.edits import Edit

_RAY_RUNNER = "horovod/ray/runner.py"
_RAY_WORKER = "horovod/ray/worker.py"
_RAY_ELASTIC = ("horovod/ray/elastic.py", "horovod/ray/elastic_v2.py")
_SPARK_RUNNER = "horovod/spark/runner.py"
_SPARK_RUNS = (
    "def run(fn, args=(), kwargs={}, num_proc=None, start_timeout=None,",
    "def run_elastic(fn, args=(), kwargs={}, num_proc=None, min_num_proc=None, max_num_proc=None,",
)
_SHIM = "from horovod._paceline import worker_environment\n"

WORKER_ENVIRONMENT_EDITS: tuple[Edit, ...] = (
    Edit(
        _RAY_RUNNER,
        "self._initialize_adapter()",
        "before",
        f"{_SHIM}extra_env_vars = worker_environment.with_drivers(extra_env_vars)",
        within="class RayExecutor:",
    ),
    *(
        Edit(
            _SPARK_RUNNER,
            "spark_context = pyspark.SparkContext._active_spark_context",
            "before",
            f"{_SHIM}env = worker_environment.with_drivers(env)",
            within=function,
        )
        for function in _SPARK_RUNS
    ),
)

RAY_2_EDITS: tuple[Edit, ...] = (
    Edit(
        _RAY_WORKER,
        "return ray.get_runtime_context().node_id.hex()",
        "replace",
        "return ray.get_runtime_context().get_node_id()",
    ),
    *(
        Edit(
            path,
            "ray.state.current_node_id(): 0.001",
            "replace",
            'f"node:{ray.util.get_node_ip_address()}": 0.001',
        )
        for path in _RAY_ELASTIC
    ),
)

LOST_WORKER_EDITS: tuple[Edit, ...] = tuple(
    Edit(
        _RAY_RUNNER,
        f"return ray.get(self._run_remote({argument}))",
        "replace",
        f"from horovod._paceline import ray_workers\nreturn ray_workers.results(self._run_remote({argument}))",
    )
    for argument in ("fn", "fn=f")
)
