"""Tasks as schedulers start them: for each scheduler the variables that one of its tasks gets.

`integration_tests/cluster/test_rank_slurm.py` and `test_rank_mpirun.py` compare the variables of Slurm, Open MPI and
MPICH with what is really set; the others follow documents and sources of their launchers.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable

Variables = dict[str, str]


def _task(text: str) -> Callable[[int, int], Variables]:
    """Variables as a shell would set them; `text` may use {rank}, {size}, {one} (rank + 1) and {two} (rank + 2)."""

    def variables(rank: int, size: int) -> Variables:
        words = shlex.split(text.format(rank=rank, size=size, one=rank + 1, two=rank + 2))
        return dict(word.split("=", 1) for word in words)

    return variables


# slurmstepd of Slurm 22.05: `srun -n SIZE env`.
slurm = _task("""
    SLURM_JOB_ID=4711 SLURM_STEP_ID=0 SLURM_STEPID=0 SLURM_PROCID={rank} SLURM_LOCALID={rank} SLURM_NODEID=0
    SLURM_NTASKS={size} SLURM_STEP_NUM_TASKS={size} SLURM_STEP_NODELIST=localhost SLURM_STEP_TASKS_PER_NODE={size}
    SLURM_JOB_NODELIST=localhost
""")
_OPENMPI = """
    OMPI_COMM_WORLD_RANK={rank} OMPI_COMM_WORLD_SIZE={size} OMPI_COMM_WORLD_LOCAL_RANK={rank}
    OMPI_COMM_WORLD_LOCAL_SIZE={size} OMPI_COMM_WORLD_NODE_RANK={rank} OMPI_UNIVERSE_SIZE={size}
    OMPI_MCA_orte_hnp_uri='2383740928.0;tcp://127.0.0.1:39711' PMIX_NAMESPACE=2383740929 PMIX_RANK={rank}
"""
# orterun of Open MPI 4.1: `mpirun -np SIZE env`.
openmpi = _task(_OPENMPI)
# sbatch's script is not a step, but has its own number, which mpirun's tasks inherit.
openmpi_in_batch_of_slurm = _task(
    _OPENMPI + "SLURM_JOB_ID=4711 SLURM_PROCID=0 SLURM_NTASKS={size} SLURM_NODEID=0 SLURM_JOB_NODELIST=localhost"
)
# mpirun starts its daemons with srun on the other hosts: tasks there inherit the daemon's number and step.
openmpi_daemons_by_srun = _task(
    _OPENMPI + "SLURM_JOB_ID=4711 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_STEP_NUM_TASKS=1"
)
# hydra_pmi_proxy of MPICH 4.0: `mpiexec.hydra -n SIZE env`; Intel MPI sets the same.
hydra = _task("PMI_RANK={rank} PMI_SIZE={size} PMI_FD=7 MPI_LOCALRANKID={rank} MPI_LOCALNRANKS={size}")
# IBM's Job Step Manager; the first host only launches.
jsrun = _task("""
    JSM_NAMESPACE_RANK={rank} JSM_NAMESPACE_SIZE={size} JSM_NAMESPACE_LOCAL_RANK={rank} LSB_JOBID=1234
    LSB_MCPU_HOSTS='127.0.0.9 1 localhost 42' OMPI_COMM_WORLD_RANK={rank} OMPI_COMM_WORLD_SIZE={size}
    PMIX_RANK={rank} PMIX_NAMESPACE=jsm-1234
""")
# LSF's res numbers tasks from 1.
blaunch = _task("LSF_PM_TASKID={one} LSB_DJOB_NUMPROC={size} LSB_JOBID=1234 LSB_MCPU_HOSTS='localhost {size}'")
# pbs_mom of Torque.
pbsdsh = _task("""
    PBS_VNODENUM={rank} PBS_NODENUM=0 PBS_TASKNUM={two} PBS_NP={size} PBS_JOBID=17.server PBS_NODEFILE=/dev/null
""")
# The Job controller sets one variable.
kubernetes = _task("JOB_COMPLETION_INDEX={rank} KUBERNETES_SERVICE_HOST=10.96.0.1")
# torch.distributed.elastic.agent.server.local_elastic_agent.
torchrun = _task("""
    RANK={rank} WORLD_SIZE={size} LOCAL_RANK={rank} LOCAL_WORLD_SIZE={size} GROUP_RANK=0 MASTER_ADDR=localhost
    MASTER_PORT=29500 TORCHELASTIC_RUN_ID=none TORCHELASTIC_RESTART_COUNT=0
""")
# `srun --mpi=pmix` and prun; the size is requested over PMIx.
pmix = _task("PMIX_RANK={rank} PMIX_NAMESPACE=prterun-host0-17@1")

# Scheduler's name -> variables, and the flags that it needs in addition, for `port`.
TASKS: dict[str, tuple[Callable[[int, int], Variables], str]] = {
    "slurm": (slurm, ""),
    "openmpi": (openmpi, ""),
    "openmpi-in-sbatch": (openmpi_in_batch_of_slurm, ""),
    "openmpi-by-srun": (openmpi_daemons_by_srun, ""),
    "hydra": (hydra, ""),
    "jsrun": (jsrun, ""),
    "blaunch": (blaunch, ""),
    "pbsdsh": (pbsdsh, "--rendezvous localhost:{port}"),
    "kubernetes": (kubernetes, "--size {size} --rendezvous localhost:{port}"),
    "torchrun": (torchrun, ""),
    "pmix": (pmix, "--size {size} --rendezvous localhost:{port}"),
    "flags": (_task(""), "--rank {rank} --size {size} --rendezvous localhost:{port}"),
}

# What a machine that runs tests may itself be in.
_PREFIXES = ("SLURM", "OMPI_", "PMI", "PMIX", "JSM_", "LSB_", "LSF_", "PBS_", "MPI_", "TORCHELASTIC", "HOROVOD_")
_NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "JOB_COMPLETION_INDEX")


def without_scheduler(environ: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if not (name.startswith(_PREFIXES) or name in _NAMES)}
