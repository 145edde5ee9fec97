"""What people, and the shell, call what Slurm says of a job. Pure."""

from __future__ import annotations

from lazerd.backend.slurm.records import SlurmJob


def where_of(job: SlurmJob) -> str:
    """Nodes and GPUs."""
    parts = [
        f"{held.node} GPU {','.join(map(str, held.indexes))}"
        if held.indexes
        else f"{held.node}, {held.gpus} GPUs"
        for held in job.held
    ]
    return "; ".join(parts) or ",".join(job.nodes)


def exit_of(job: SlurmJob | None) -> tuple[int | None, str]:
    """The exit code as a shell says it, and Slurm's word where it is more than that."""
    if job is None:
        return None, "Slurm no longer knows the job"
    code, signal_number = divmod(job.exit_status, 256)
    detail = "" if job.state == "COMPLETED" else job.state
    return (128 + signal_number % 128 if signal_number else code), detail
