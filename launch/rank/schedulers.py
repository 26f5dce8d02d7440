"""Variables that each scheduler sets for its tasks. One entry per scheduler.

A comment at each entry names its source. Slurm 22.05, Open MPI 4.1 and MPICH 4.0 are tested against the real programs
(integration_tests/cluster). The others follow the documents and programs named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from paceline.launch.rank import hostlists


@dataclass(frozen=True)
class Scheduler:
    """Variables from which a task of this scheduler gets its identity. Of several names the first one set counts.

    `marks`: variables that must be set too; without them this is not a task but, for example, a batch script. `first`:
    number of the first task. `job`: variables that together identify one start of one job. `hosts`: where rank 0 may
    be. `inside`: schedulers that may start this one, whose variables then describe its launcher. If `proof` is given it
    must be set for that, because the other variables may also have been set by hand.
    """

    name: str
    title: str
    rank: tuple[str, ...]
    size: tuple[str, ...]
    marks: tuple[str, ...] = ()
    local_rank: str = ""
    local_size: str = ""
    first: int = 0
    job: tuple[str, ...] = ()
    hosts: hostlists.Hosts = lambda _: []
    inside: tuple[str, ...] = ()
    proof: str = ""

    def started(self, environ: Mapping[str, str]) -> bool:
        """True if this process looks like a task of the scheduler."""
        return any(name in environ for name in self.rank) and all(name in environ for name in self.marks)


_BATCH = ("slurm", "blaunch", "pbs", "kubernetes")

SCHEDULERS: tuple[Scheduler, ...] = (
    # torchrun, https://docs.pytorch.org/docs/stable/elastic/run.html "Environment Variables"; Kubeflow's PyTorchJob
    # sets the first two and MASTER_ADDR.
    Scheduler(
        "torchrun", "torchrun",
        rank=("RANK",), size=("WORLD_SIZE",), local_rank="LOCAL_RANK", local_size="LOCAL_WORLD_SIZE",
        job=("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT"),
        hosts=hostlists.named("MASTER_ADDR"),
        inside=("openmpi", "jsrun", "pmi", "pmix", *_BATCH), proof="TORCHELASTIC_RUN_ID",
    ),
    # jsrun: "jsrun" in IBM's Job Step Manager manual; PyTorch Lightning's LSF environment reads the same variables. It
    # precedes Open MPI, from which IBM's MPI derives: if both have variables, these are more exact.
    Scheduler(
        "jsrun", "LSF (jsrun)",
        rank=("JSM_NAMESPACE_RANK",), size=("JSM_NAMESPACE_SIZE",),
        local_rank="JSM_NAMESPACE_LOCAL_RANK", local_size="JSM_NAMESPACE_LOCAL_SIZE",
        job=("LSB_JOBID", "PMIX_NAMESPACE"), hosts=hostlists.lsf, inside=("blaunch",),
    ),
    # Open MPI, https://docs.open-mpi.org/en/main/tuning-apps/environment-var.html; the last line is 4.1's.
    Scheduler(
        "openmpi", "Open MPI (mpirun)",
        rank=("OMPI_COMM_WORLD_RANK",), size=("OMPI_COMM_WORLD_SIZE",),
        local_rank="OMPI_COMM_WORLD_LOCAL_RANK", local_size="OMPI_COMM_WORLD_LOCAL_SIZE",
        job=("PMIX_NAMESPACE", "OMPI_MCA_orte_hnp_uri"), hosts=hostlists.open_mpi, inside=_BATCH,
    ),
    # PMI-1: MPICH's Hydra and Intel MPI (src/pm/hydra in MPICH), Cray's aprun, `srun --mpi=pmi2`.
    Scheduler(
        "pmi", "MPICH or Intel MPI (PMI)",
        rank=("PMI_RANK",), size=("PMI_SIZE",), local_rank="MPI_LOCALRANKID", local_size="MPI_LOCALNRANKS",
        job=("PMI_JOBID",), hosts=hostlists.batch, inside=_BATCH,
    ),
    # Slurm: srun's manual page, "OUTPUT ENVIRONMENT VARIABLES". A batch script has SLURM_PROCID=0 as well, but no step.
    Scheduler(
        "slurm", "Slurm (srun)",
        rank=("SLURM_PROCID",), size=("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), marks=("SLURM_STEP_ID",),
        local_rank="SLURM_LOCALID", job=("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"),
        hosts=hostlists.compact("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"),
    ),
    # blaunch: numbers from 1, as in Open MPI's orte/mca/ess/lsf; LSB_ variables from IBM's LSF reference.
    Scheduler(
        "blaunch", "LSF (blaunch)",
        rank=("LSF_PM_TASKID",), size=("LSB_DJOB_NUMPROC",), first=1,
        job=("LSB_JOBID", "LSB_JOBINDEX"), hosts=hostlists.lsf,
    ),
    # Torque's pbsdsh counts slots in PBS_VNODENUM; OpenPBS counts hosts in PBS_NODENUM and sets no size (pbsdsh(1)).
    Scheduler(
        "pbs", "PBS (pbsdsh)",
        rank=("PBS_VNODENUM", "PBS_NODENUM"), size=("PBS_NP",), job=("PBS_JOBID",), hosts=hostlists.pbs,
    ),
    # Kubernetes, "Indexed Job" and "Job with Pod-to-Pod Communication"; no pod gets the number of pods.
    Scheduler(
        "kubernetes", "Kubernetes (Indexed Job)",
        rank=("JOB_COMPLETION_INDEX",), size=(), job=(), hosts=hostlists.indexed_pod,
    ),
    # PMIx alone, for example `srun --mpi=pmix` or prun; the size must be requested over PMIx, there is no variable.
    Scheduler(
        "pmix", "PMIx",
        rank=("PMIX_RANK",), size=(), job=("PMIX_NAMESPACE",), hosts=hostlists.batch, inside=_BATCH,
    ),
)  # fmt: skip

NAMES = tuple(scheduler.name for scheduler in SCHEDULERS)
