"""Alibaba as published: alibaba/clusterdata, cluster-trace-gpu-v2020 and -v2023."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from tools.replay.errors import TraceError
from tools.replay.traces.record import TraceJob
from tools.replay.traces.table import rows

# The files have no header; the names are in the .header files beside them.
JOB_COLUMNS = ("job_name", "inst_id", "user", "status", "start_time", "end_time")
TASK_COLUMNS = (
    "job_name",
    "task_name",
    "inst_num",
    "status",
    "start_time",
    "end_time",
    "plan_cpu",
    "plan_mem",
    "plan_gpu",
    "gpu_type",
)
PERCENT_A_GPU = 100.0  # plan_gpu is in hundredths of a GPU
MILLI_A_GPU = 1000.0


def read_alibaba_2020(path: Path) -> Iterator[TraceJob]:
    """`pai_job_table.csv`, with `pai_task_table.csv` in the same directory for the GPUs.

    A job is submitted at its own start_time; it runs from the first start of a task to its end.
    Its GPUs are the sum over its tasks of instances times plan_gpu, rounded up to whole ones. Jobs
    that have not ended, or have no GPU, are left out.
    """
    tasks = path.with_name(path.name.replace("job", "task"))
    if tasks == path or not tasks.exists():
        raise TraceError(path, None, f"the table of tasks, {tasks.name}, must lie beside it")
    plans = _plans(tasks)
    for row in rows(path, JOB_COLUMNS, header=JOB_COLUMNS):
        plan = plans.get(row.text("job_name"))
        if plan is None or not row.text("start_time") or not row.text("end_time"):
            continue
        gpus, start_s, name = plan
        duration_s = row.seconds("end_time") - start_s
        if gpus and duration_s > 0:
            submit_s = row.seconds("start_time")
            yield TraceJob(row.text("job_name"), submit_s, duration_s, gpus, row.text("user"), name)


def _plans(path: Path) -> dict[str, tuple[int, float, str]]:
    """For each job: whole GPUs, when its first task started, and the names of its tasks."""
    percents: dict[str, float] = {}
    starts: dict[str, float] = {}
    names: dict[str, str] = {}
    for row in rows(path, TASK_COLUMNS, header=TASK_COLUMNS):
        if not row.text("start_time"):
            continue
        job = row.text("job_name")
        plan = row.number("plan_gpu") if row.text("plan_gpu") else 0.0
        percents[job] = percents.get(job, 0.0) + row.number("inst_num") * plan
        starts[job] = min(starts.get(job, math.inf), row.seconds("start_time"))
        names[job] = (
            f"{names[job]}+{row.text('task_name')}" if job in names else row.text("task_name")
        )
    return {
        job: (math.ceil(percent / PERCENT_A_GPU), starts[job], names[job])
        for job, percent in percents.items()
    }


def read_alibaba_2023(path: Path) -> Iterator[TraceJob]:
    """`openb_pod_list_*.csv`: pods, each a job; shares of a GPU are rounded up to one.

    It runs from scheduled_time to deletion_time. Pods without GPUs or never scheduled are left out.
    """
    times = ("creation_time", "scheduled_time", "deletion_time")
    for row in rows(path, ("name", "num_gpu", "gpu_milli", "qos", *times)):
        gpus = math.ceil(row.count("num_gpu") * min(1.0, row.number("gpu_milli") / MILLI_A_GPU))
        if not gpus or not row.text("scheduled_time") or not row.text("deletion_time"):
            continue
        duration_s = row.seconds("deletion_time") - row.seconds("scheduled_time")
        if duration_s > 0:
            submit_s = row.seconds("creation_time")
            yield TraceJob(row.text("name"), submit_s, duration_s, gpus, "", row.text("qos"))
