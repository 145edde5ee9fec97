"""The settings of Slurm that preemption depends on, and what to say about them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lazerd.backend.protocol import Problem
from lazerd.backend.slurm.records import SlurmJob, SlurmPartition
from lazerd.backend.slurm.values import count_of, interval_s, settings_of

KILL_WAIT_S = 30.0
UNKILLABLE_S = 60.0
MIN_JOB_AGE_S = 300.0
CRED_EXPIRE_S = 120.0
MAX_BATCH_REQUEUE = 5
"""Slurm's defaults (slurm.conf). MaxBatchRequeue became a setting in 23.11; before it was this."""


@dataclass(frozen=True, slots=True)
class Controls:
    """What `scontrol show config` says. Times in seconds.

    `kill_wait_s` passes between the TERM and the KILL of a requeue; `unkillable_s` after that a
    node is drained; `min_job_age_s` is how long an ended job is remembered; `requeue_delay_s` how
    long a requeued job would have to wait if lazerd did not take that away.
    """

    version: str = ""
    kill_wait_s: float = KILL_WAIT_S
    unkillable_s: float = UNKILLABLE_S
    min_job_age_s: float = MIN_JOB_AGE_S
    requeue_delay_s: float = CRED_EXPIRE_S + 1
    max_batch_requeue: int = MAX_BATCH_REQUEUE
    job_requeue: bool = True
    preempt_type: str = ""
    preempt_mode: str = ""
    submit_plugins: tuple[str, ...] = ()

    @property
    def release(self) -> tuple[int, int]:
        """Year and month of the release; (0, 0) when it is not known."""
        parts = self.version.split(".")
        known = len(parts) >= 2 and parts[0].isdigit() and parts[1].isdigit()
        return (int(parts[0]), int(parts[1])) if known else (0, 0)


def controls_of(config: Mapping[str, str]) -> Controls:
    """What matters of `scontrol show config`; defaults for what a release does not have."""
    more = {
        **settings_of(config.get("SchedulerParameters", "")),
        **settings_of(config.get("SlurmctldParameters", "")),
    }
    cred_s = count_of(settings_of(config.get("AuthInfo", "")).get("cred_expire") or None)
    delay = more.get("requeue_delay") or config.get("RequeueDelay")
    return Controls(
        version=config.get("SLURM_VERSION", ""),
        kill_wait_s=_seconds(config, "KillWait", KILL_WAIT_S),
        unkillable_s=_seconds(config, "UnkillableStepTimeout", UNKILLABLE_S),
        min_job_age_s=_seconds(config, "MinJobAge", MIN_JOB_AGE_S),
        requeue_delay_s=interval_s(delay) or 0.0 if delay else (cred_s or CRED_EXPIRE_S) + 1,
        max_batch_requeue=count_of(config.get("MaxBatchRequeue"), MAX_BATCH_REQUEUE),
        job_requeue=config.get("JobRequeue", "1") != "0",
        preempt_type=config.get("PreemptType", ""),
        preempt_mode=config.get("PreemptMode", ""),
        submit_plugins=tuple(
            p for p in config.get("JobSubmitPlugins", "").split(",") if p not in ("", "(null)")
        ),
    )


def warnings_of(
    controls: Controls, partitions: Sequence[SlurmPartition], steered: Sequence[str]
) -> list[Problem]:
    """What in the settings will go wrong, before it does."""
    problems = []
    names = {partition.name for partition in partitions}
    for name in steered:
        if names and name not in names:
            problems.append(
                Problem("NoSuchPartition", f"Slurm has no partition {name}.", "Correct the name.")
            )
    preempting = [p.name for p in partitions if p.name in steered and _preempts(p, controls)]
    if preempting:
        problems.append(
            Problem(
                "SlurmPreempts",
                f"Slurm itself preempts in {', '.join(preempting)} ({controls.preempt_mode}).",
                "Set PreemptMode=OFF for the partitions that lazerd steers.",
            )
        )
    if not any(plugin.endswith("lua") for plugin in controls.submit_plugins):
        problems.append(
            Problem(
                "NotHeldAtSubmission",
                "Jobs may start before lazerd has seen them: JobSubmitPlugins has no lua.",
                "Install job_submit.lua (docs/slurm.md).",
            )
        )
    return problems


def warning_of_launches(job: SlurmJob, job_id: str, controls: Controls) -> Problem | None:
    """A job whose launches fail: Slurm holds it for good after MaxBatchRequeue of them."""
    if "launch" not in job.reason.lower() or job.restarts + 1 < controls.max_batch_requeue:
        return None
    return Problem(
        "LaunchesFail",
        f"Job {job_id} failed to launch and was requeued {job.restarts} times; at"
        f" {controls.max_batch_requeue} Slurm holds it (MaxBatchRequeue).",
        "Look at slurmd's log on its last node.",
    )


def facts_of(controls: Controls) -> dict[str, object]:
    """For `lazer status`."""
    return {
        "version": controls.version,
        "kill_wait_s": controls.kill_wait_s,
        "unkillable_step_timeout_s": controls.unkillable_s,
        "min_job_age_s": controls.min_job_age_s,
        "requeue_delay_s": controls.requeue_delay_s,
        "max_batch_requeue": controls.max_batch_requeue,
        "job_requeue": controls.job_requeue,
        "preempt_type": controls.preempt_type,
        "preempt_mode": controls.preempt_mode,
        "job_submit_plugins": list(controls.submit_plugins),
    }


def _seconds(config: Mapping[str, str], key: str, default: float) -> float:
    value = interval_s(config[key]) if key in config else None
    return default if value is None else value


def _preempts(partition: SlurmPartition, controls: Controls) -> bool:
    mode = partition.preempt_mode or controls.preempt_mode
    return controls.preempt_type not in ("", "preempt/none", "(null)") and "OFF" not in mode
