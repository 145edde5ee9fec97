"""Which job is a process of? From text as the kernel and Slurm write it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lazerd.sensor.ownership import (
    LAZER,
    REALMS,
    SLURM,
    Realm,
    job_in_cgroup,
    job_in_environ,
    parent_in_status,
)
from lazerd.sensor.processes import JobFinder

SLURM_V1 = """\
12:memory:/slurm/uid_1000/job_4711/step_batch/task_0
5:freezer:/slurm/uid_1000/job_4711/step_batch
1:name=systemd:/system.slice/slurmd.service
"""
SLURM_V1_NODE = "4:freezer:/slurm_gpu-01/uid_0/job_12/step_0/task_3\n"
SLURM_V2 = "0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_2\n"
SLURM_V2_NODE = "0::/system.slice/gpu-01_slurmstepd.scope/job_8/step_extern/user/task_special\n"
LAZER_V2 = "0::/system.slice/lazerd.service/lazer-0a1b2c3d/job-17-2\n"
SESSION = "0::/user.slice/user-1000.slice/session-3.scope\n"


@pytest.mark.parametrize(
    ("text", "realm", "job_id"),
    [
        (SLURM_V1, SLURM, "4711"),
        (SLURM_V1_NODE, SLURM, "12"),
        (SLURM_V2, SLURM, "4711"),
        (SLURM_V2_NODE, SLURM, "8"),
        (LAZER_V2, LAZER, "17"),
        (LAZER_V2.replace("\n", "/worker\n"), LAZER, "17"),
        (SESSION, SLURM, None),
        (SESSION, LAZER, None),
        (LAZER_V2, SLURM, None),
        (SLURM_V2, LAZER, None),
        ("0::/user.slice/my_job_5\n", SLURM, None),
        ("", SLURM, None),
        ("nonsense", LAZER, None),
    ],
)
def test_cgroups(text: str, realm: Realm, job_id: str | None) -> None:
    assert job_in_cgroup(text, realm) == job_id


def test_environments() -> None:
    data = b"HOME=/root\0SLURM_JOB_ID=31\0LAZER_JOB_ID=x-1\0"
    assert job_in_environ(data, SLURM) == "31"
    assert job_in_environ(data, LAZER) == "x-1"
    assert job_in_environ(b"LAZER_JOB_ID=../../etc\0", LAZER) is None
    assert job_in_environ(b"LAZER_JOB_ID=\0", LAZER) is None
    assert job_in_environ(b"SLURM_JOBID=8", SLURM) == "8"


@given(st.text(), st.binary(), st.sampled_from(sorted(REALMS)))
def test_any_text_is_read(text: str, data: bytes, realm: str) -> None:
    job_in_cgroup(text, REALMS[realm])
    job_in_environ(data, REALMS[realm])
    assert parent_in_status(text) >= 0


class Proc:
    """A /proc of files."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def add(
        self,
        pid: int,
        parent: int = 1,
        cgroup: str = SESSION,
        environ: bytes = b"",
        device: str = "",
    ) -> None:
        folder = self.root / str(pid)
        (folder / "fd").mkdir(parents=True)
        (folder / "cgroup").write_text(cgroup)
        (folder / "environ").write_bytes(environ)
        (folder / "status").write_text(f"Name:\tx\nPid:\t{pid}\nPPid:\t{parent}\n")
        if device:
            os.symlink(device, folder / "fd" / "4")

    def finder(self, realm: Realm = LAZER, trusts_pids: bool = True) -> JobFinder:
        return JobFinder(realm, self.root, trusts_pids)


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


def test_the_cgroup_goes_before_what_the_environment_claims(proc: Proc) -> None:
    proc.add(9, cgroup=LAZER_V2, environ=b"LAZER_JOB_ID=99\0")
    assert proc.finder().job_of(9) == "17"


def test_the_environment_serves_where_there_is_no_cgroup(proc: Proc) -> None:
    proc.add(9, environ=b"LAZER_JOB_ID=99\0")
    assert proc.finder().job_of(9) == "99"
    assert proc.finder(SLURM).job_of(9) == ""


def test_ancestors_speak_for_a_process_that_cleaned_its_environment(proc: Proc) -> None:
    proc.add(7, environ=b"LAZER_JOB_ID=5\0")
    proc.add(8, parent=7)
    proc.add(9, parent=8)
    assert proc.finder().job_of(9) == "5"


def test_a_loop_of_parents_ends(proc: Proc) -> None:
    proc.add(8, parent=9)
    proc.add(9, parent=8)
    assert proc.finder().job_of(9) == ""


def test_a_process_that_has_ended(proc: Proc) -> None:
    assert proc.finder().job_of(12345) is None


def test_in_a_pid_namespace_only_who_has_a_gpu_open_is_believed(proc: Proc) -> None:
    proc.add(9, cgroup=LAZER_V2)
    proc.add(10, cgroup=LAZER_V2, device="/dev/nvidia0")
    finder = proc.finder(trusts_pids=False)
    assert finder.job_of(9) is None
    assert finder.job_of(10) == "17"


def test_the_real_proc_answers() -> None:
    assert JobFinder(SLURM, trusts_pids=True).job_of(os.getpid()) == os.environ.get(
        "SLURM_JOB_ID", ""
    )
