"""Readers of traces: what a row means, and what is said of a bad one."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.replay import traces_as_published as published
from tools.replay.case import parse_since
from tools.replay.errors import OptionError, TraceError
from tools.replay.traces import FORMATS, Selection, TraceJob, format_of, read

SHARED = Path(__file__).parents[3] / "shared" / "traces"

# The format, the file's name, what is in it, and (id, submission from the first, duration, GPUs,
# user, name, priority) of its jobs.
CASES = [
    ("philly", "philly.csv", published.PHILLY_TABLE,
     [("3", 0, 60, 1, "bb", "", 0), ("2", 30, 120, 8, "aa", "", 0)]),
    # 60 s on two GPUs, then 600 s on four; the attempt without an end does not count.
    ("philly-log", "cluster_job_log", published.PHILLY_LOG,
     [("application_1", 0, 660, 4, "u1", "vc1", 0)]),
    ("kalos", "kalos.csv", published.KALOS,
     [("0", 0, 100, 64, "", "", 0), ("1", 50, 20, 8, "", "", 0)]),
    ("muri", "muri.csv", published.MURI,
     [("0", 0, 60, 1, "", "dqn", 1), ("1", 5, 90, 8, "", "vgg16", 0)]),
    ("tiresias", "60.csv", published.TIRESIAS,
     [("0", 0, 160, 1, "", "vgg19", 0), ("1", 30, 140, 8, "", "vgg11", 0)]),
    ("helios", "cluster_log.csv", published.HELIOS, [("7", 0, 1200, 4, "ua", "jc", 0)]),
    ("acme", "trace_seren.csv", published.ACME_SEREN, [("5", 0, 120, 8, "u1", "Other", 0)]),
    ("acme", "trace_kalos.csv", published.ACME_KALOS, [("dlc1", 0, 120, 64, "u1", "Pretrain", 0)]),
    # Two workers of 150 % are three GPUs; from the first task at 1,100 to 1,500 s.
    ("alibaba-2020", "pai_job_table.csv", published.ALIBABA_2020_JOBS,
     [("j1", 0, 400, 3, "u1", "worker+ps", 0)]),
    ("alibaba-2023", "openb_pod_list_default.csv", published.ALIBABA_2023,
     [("pod-1", 0, 900, 8, "", "Burstable", 0), ("pod-2", 200, 600, 1, "", "BE", 0)]),
]  # fmt: skip


def _written(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / name
    path.write_text(text)
    (tmp_path / "pai_task_table.csv").write_text(published.ALIBABA_2020_TASKS)
    return path


@pytest.mark.parametrize(("name", "file", "text", "jobs"), CASES, ids=[c[1] for c in CASES])
def test_a_published_trace(
    tmp_path: Path, name: str, file: str, text: str, jobs: list[tuple[str, int, int, int, str, str]]
) -> None:
    path = _written(tmp_path, file, text)
    assert format_of(path) == name
    assert read(path, None, Selection()) == [TraceJob(*job) for job in jobs]


def test_a_gzipped_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(gzip.compress(published.TIRESIAS.encode()))
    assert [job.duration_s for job in read(path, "tiresias", Selection())] == [160, 140]


def test_a_selection() -> None:
    jobs = [TraceJob(str(at), 100.0 * at, 10.4, 1 << at) for at in (3, 0, 2, 1)]
    kept = Selection(since_s=100, min_gpus=2, limit=2, compress=4).of(jobs)
    assert [(job.id, job.submit_s, job.duration_s) for job in kept] == [("1", 0, 10), ("2", 25, 10)]


def test_a_date_and_seconds_say_since_when() -> None:
    assert parse_since("2017-10-06") == 1507248000
    assert parse_since("90.5") == 90.5
    with pytest.raises(OptionError, match="neither seconds nor a date"):
        parse_since("yesterday")


def _changed(old: str, new: str) -> Callable[[str], str]:
    return lambda text: text.replace(old, new, 1)


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("p.csv", _changed("60.0,1,60", "long,1,60")(published.PHILLY_TABLE),
         r"p\.csv, line 3: duration is 'long', not a number"),
        ("p.csv", _changed("120.0,8", "-1,8")(published.PHILLY_TABLE),
         r"p\.csv, line 2: duration is '-1', a negative time"),
        ("p.csv", _changed("120.0,8", "120.0,2.5")(published.PHILLY_TABLE),
         r"p\.csv, line 2: num_gpus is '2\.5', not a number of things"),
        ("p.csv", _changed("2017-10-07 00:00:30", "2017-13-07")(published.PHILLY_TABLE),
         r"p\.csv, line 2: timestamp is '2017-13-07', not a date and time"),
        ("p.csv", _changed(",960.0,aa", "")(published.PHILLY_TABLE),
         r"p\.csv, line 2: it has 3 fields, and there are 5 columns"),
        ("p.csv", _changed("120.0,8", "inf,8")(published.PHILLY_TABLE), "not a finite number"),
        ("60.csv", published.TIRESIAS + "1,8,40,130,vgg11,140,10\n", "2 jobs in it are called 1"),
        ("p.csv", published.PHILLY_TABLE.splitlines()[0], "there are no jobs in it"),
        ("p.csv", "", "no known format has these columns"),
        ("log", "[1", r"log, line 1: it is not JSON"),
        ("log", "[]", "it is not a list of jobs"),
        ("log", '[{"jobid": "a"}]', "entry 1 is not a job: it has no 'attempts'"),
        ("helios.csv", _changed("18:30:00,1200", "17:30:00,1200")(published.HELIOS),
         r"helios\.csv, line 2: end_time is before start_time"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(tmp_path: Path, file: str, text: str, says: str) -> None:
    with pytest.raises(TraceError, match=says):
        read(_written(tmp_path, file, text), None, Selection())


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"gone\.csv: it cannot be read: No such file"):
        read(tmp_path / "gone.csv", None, Selection())


def test_alibaba_without_its_tasks(tmp_path: Path) -> None:
    path = tmp_path / "pai_job_table.csv"
    path.write_text(published.ALIBABA_2020_JOBS)
    with pytest.raises(TraceError, match=r"pai_task_table\.csv, must lie beside it"):
        read(path, None, Selection())


def test_every_format_is_tried() -> None:
    assert {case[0] for case in CASES} == set(FORMATS)


@pytest.mark.parametrize(
    ("file", "since", "jobs", "days"),
    [
        ("philly.csv.gz", "2017-10-06", 69_120, 77.3),
        ("kalos_completed_large_jobs.csv", None, 319, 90.0),
        ("muri/trace1.csv.gz", None, 1494, 125.2),
        ("muri/trace3.csv.gz", None, 992, 94.5),
        ("tiresias_60_job.csv", None, 60, 1779 / 86400),
    ],
)
def test_a_shared_trace(file: str, since: str | None, jobs: int, days: float) -> None:
    path = SHARED / file
    if not path.exists():
        pytest.skip(f"the shared trace {file} is not beside the checkout")
    found = read(path, None, Selection(since_s=None if since is None else parse_since(since)))
    assert len(found) == jobs
    assert found[-1].submit_s / 86400 == pytest.approx(days, rel=0.02)
