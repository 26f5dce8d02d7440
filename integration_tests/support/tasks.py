"""Tasks as schedulers start them: for each scheduler the variables that one of its tasks gets.

`integration_tests/cluster/test_rank_slurm.py` and `test_rank_mpirun.py` compare those of Slurm, Open MPI and MPICH with
what is really set; the others have the form that documents and sources of their launchers describe.
"""

from __future__ import annotations

from collections.abc import Callable

Variables = dict[str, str]


def slurm(rank: int, size: int) -> Variables:
    # slurmstepd of Slurm 22.05: `srun -n SIZE env`.
    return {
        "SLURM_JOB_ID": "4711",
        "SLURM_STEP_ID": "0",
        "SLURM_STEPID": "0",
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank),
        "SLURM_NODEID": "0",
        "SLURM_NTASKS": str(size),
        "SLURM_STEP_NUM_TASKS": str(size),
        "SLURM_STEP_NODELIST": "localhost",
        "SLURM_STEP_TASKS_PER_NODE": str(size),
        "SLURM_JOB_NODELIST": "localhost",
    }


def openmpi(rank: int, size: int) -> Variables:
    # orterun of Open MPI 4.1: `mpirun -np SIZE env`.
    return {
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_SIZE": str(size),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(rank),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(size),
        "OMPI_COMM_WORLD_NODE_RANK": str(rank),
        "OMPI_UNIVERSE_SIZE": str(size),
        "OMPI_MCA_orte_hnp_uri": "2383740928.0;tcp://127.0.0.1:39711",
        "PMIX_NAMESPACE": "2383740929",
        "PMIX_RANK": str(rank),
    }


def openmpi_in_batch_of_slurm(rank: int, size: int) -> Variables:
    # sbatch's script is no step, but has a number of its own, which mpirun's tasks inherit.
    inherited = {"SLURM_JOB_ID": "4711", "SLURM_PROCID": "0", "SLURM_NTASKS": str(size), "SLURM_NODEID": "0"}
    return {**openmpi(rank, size), **inherited, "SLURM_JOB_NODELIST": "localhost"}


def openmpi_daemons_by_srun(rank: int, size: int) -> Variables:
    # mpirun starts its daemons with srun on the other hosts: tasks there inherit the daemon's number and step.
    inherited = {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}
    return {**openmpi(rank, size), **inherited, "SLURM_STEP_NUM_TASKS": "1"}


def hydra(rank: int, size: int) -> Variables:
    # hydra_pmi_proxy of MPICH 4.0: `mpiexec.hydra -n SIZE env`; Intel MPI sets the same.
    return {
        "PMI_RANK": str(rank),
        "PMI_SIZE": str(size),
        "PMI_FD": "7",
        "MPI_LOCALRANKID": str(rank),
        "MPI_LOCALNRANKS": str(size),
    }


def jsrun(rank: int, size: int) -> Variables:
    # IBM's Job Step Manager; the first host only launches.
    return {
        "JSM_NAMESPACE_RANK": str(rank),
        "JSM_NAMESPACE_SIZE": str(size),
        "JSM_NAMESPACE_LOCAL_RANK": str(rank),
        "LSB_JOBID": "1234",
        "LSB_MCPU_HOSTS": "127.0.0.9 1 localhost 42",
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_SIZE": str(size),
        "PMIX_RANK": str(rank),
        "PMIX_NAMESPACE": "jsm-1234",
    }


def blaunch(rank: int, size: int) -> Variables:
    # LSF's res numbers tasks from 1.
    return {
        "LSF_PM_TASKID": str(rank + 1),
        "LSB_DJOB_NUMPROC": str(size),
        "LSB_JOBID": "1234",
        "LSB_MCPU_HOSTS": f"localhost {size}",
    }


def pbsdsh(rank: int, size: int) -> Variables:
    # pbs_mom of Torque.
    return {
        "PBS_VNODENUM": str(rank),
        "PBS_NODENUM": "0",
        "PBS_TASKNUM": str(rank + 2),
        "PBS_NP": str(size),
        "PBS_JOBID": "17.server",
        "PBS_NODEFILE": "/dev/null",
    }


def kubernetes(rank: int, size: int) -> Variables:
    # The Job controller sets this one variable.
    return {"JOB_COMPLETION_INDEX": str(rank), "KUBERNETES_SERVICE_HOST": "10.96.0.1"}


def torchrun(rank: int, size: int) -> Variables:
    # torch.distributed.elastic.agent.server.local_elastic_agent.
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(size),
        "GROUP_RANK": "0",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_RESTART_COUNT": "0",
    }


def pmix(rank: int, size: int) -> Variables:
    # `srun --mpi=pmix` and prun; the size is to be asked for over PMIx.
    return {"PMIX_RANK": str(rank), "PMIX_NAMESPACE": "prterun-host0-17@1"}


# Scheduler's name -> variables, and the flags that it needs beside them, for `port`.
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
    "flags": (lambda rank, size: {}, "--rank {rank} --size {size} --rendezvous localhost:{port}"),
}

# What a machine that runs tests may itself be in.
_PREFIXES = ("SLURM", "OMPI_", "PMI", "PMIX", "JSM_", "LSB_", "LSF_", "PBS_", "MPI_", "TORCHELASTIC", "HOROVOD_")
_NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "JOB_COMPLETION_INDEX")


def without_scheduler(environ: dict[str, str]) -> dict[str, str]:
    """An environment without what schedulers put into it."""
    return {name: value for name, value in environ.items() if not (name.startswith(_PREFIXES) or name in _NAMES)}
