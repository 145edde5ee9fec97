"""All releases' samples, JSON and text, read to the same records."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from lazerd.backend.slurm import document, queue, scontrol
from lazerd.backend.slurm.controls import controls_of, warnings_of
from lazerd.backend.slurm.errors import BrokenAnswer
from lazerd.backend.slurm.records import Held, SlurmJob, SlurmNode, SlurmPartition
from lazerd.backend.slurm.standing import each_task, why_not_steered

SAMPLES = Path(__file__).parent / "slurm"
RELEASES = ("22.05", "23.11", "24.05", "25.05")


def sample(release: str, name: str) -> bytes:
    return (SAMPLES / release / name).read_bytes()


def jobs_in(release: str, name: str = "squeue.json") -> dict[int, SlurmJob]:
    answer = sample(release, name)
    read = document.jobs_of(answer) if name.endswith("json") else scontrol.jobs_of(answer.decode())
    found, broken = read
    assert broken == []
    return {job.number: job for job in found}


ALL = [(release, "squeue.json") for release in RELEASES] + [
    ("22.05", "job.txt"),
    ("25.05", "job.txt"),
]


@pytest.mark.parametrize(("release", "name"), ALL)
def test_every_job_is_read(release: str, name: str) -> None:
    jobs = jobs_in(release, name)
    assert set(jobs) == set(range(1, 13))
    assert (jobs[1].state, jobs[1].exit_status) == ("COMPLETED", 0)
    assert (jobs[2].state, jobs[2].exit_status, jobs[2].is_over) == ("FAILED", 7 * 256, True)


@pytest.mark.parametrize(("release", "name"), ALL)
def test_a_job_of_two_nodes(release: str, name: str) -> None:
    job = jobs_in(release, name)[3]
    assert job.is_running and job.name == "two nodes | and a = sign"
    assert (job.gpus, job.gpus_per_node, job.node_count) == (4, 2, 2)
    assert job.held == (Held("n1", 2, (2, 3)), Held("n2", 2, (0, 1)))
    assert job.comment == "lazer estimate=2h grace=60s signal=USR1"
    assert job.admin_comment == "lazer:new"


@pytest.mark.parametrize(("release", "name"), ALL)
def test_an_array_and_its_tasks(release: str, name: str) -> None:
    jobs = jobs_in(release, name)
    assert (jobs[4].tasks.partition("%")[0], jobs[4].throttle) == ("0-2,4-5,9", 2)
    assert (jobs[5].array_id, jobs[5].task, jobs[5].required_nodes) == (4, 3, "n3")
    names = [job_id for job_id, _ in each_task([jobs[5], jobs[4], jobs[1]])]
    assert names == ["4_3", "4_0", "4_1", "4_2", "4_4", "4_5", "4_9", "1"]


@pytest.mark.parametrize(("release", "name"), ALL)
def test_dependencies_limits_and_totals(release: str, name: str) -> None:
    jobs = jobs_in(release, name)
    assert jobs[6].dependency == "afterok:3(unfulfilled),afterany:4_*(unfulfilled)"
    assert jobs[6].limit_s == pytest.approx(93_784, abs=60), "JSON rounds to minutes"
    assert jobs[7].limit_s is None
    assert jobs[7].gpus == 6
    assert jobs[6].is_held and jobs[6].is_pending


@pytest.mark.parametrize(("release", "name"), ALL)
def test_what_is_left_to_slurm(release: str, name: str) -> None:
    jobs = jobs_in(release, name)
    why = {number: why_not_steered(job, frozenset({"gpu"})) for number, job in jobs.items()}
    assert why[8] == "it is in another partition"
    assert why_not_steered(jobs[8], frozenset({"other"})).startswith("it cannot be requeued")
    assert why[9] == why[10] == "it is part of a heterogeneous job"
    assert why[11] == "it runs in the reservation r1"
    assert not any(why[number] for number in (1, 2, 3, 4, 5, 6, 7, 12))


@pytest.mark.parametrize(("release", "name"), ALL)
def test_a_job_that_completes_is_neither_in_line_nor_over(release: str, name: str) -> None:
    job = jobs_in(release, name)[12]
    assert job.is_completing and job.restarts == 1
    assert not (job.is_pending or job.is_running or job.is_over)


def test_text_and_json_of_a_release_say_the_same() -> None:
    text, read = jobs_in("22.05", "job.txt"), jobs_in("22.05")
    for number, job in read.items():
        same = {"limit_s": None, "begins_s": None, "started_s": None, "submitted_s": 0.0}
        # In JSON, 22.05 gives other reasons than in text, and no state beside COMPLETING.
        same |= {"reason": "", "state": "", "tasks": "", "exit_status": 0, "user": ""}
        assert replace(text[number], **same) == replace(job, **same)


NODES = [
    ("22.05", "sinfo.json"),
    ("22.05", "node.txt"),
    ("22.05", "sinfo.txt"),
    ("23.11", "node.json"),
    ("24.05", "node.json"),
    ("24.05", "sinfo.json"),
    ("25.05", "node.json"),
]


@pytest.mark.parametrize(("release", "name"), NODES)
def test_every_node_is_read(release: str, name: str) -> None:
    answer = sample(release, name)
    if name.endswith("json"):
        nodes, broken = document.nodes_of(answer)
    else:
        read = queue.nodes_of if name == "sinfo.txt" else scontrol.nodes_of
        nodes, broken = read(answer.decode())
    assert broken == []
    assert [(node.name, node.gpus, node.partitions) for node in nodes] == [
        (name, 4, ("gpu", "other")) for name in ("n1", "n2", "n3")
    ]
    assert [bool(node.why) for node in nodes] == [False, True, False]
    assert nodes[1].why.startswith("n2 is drained")
    assert name == "sinfo.txt" or "fan broken" in nodes[1].why


def test_the_text_of_squeue() -> None:
    jobs, broken = queue.jobs_of(sample("22.05", "squeue.txt").decode())
    found = {job.number: job for job in jobs}
    assert broken == []
    assert found[3].nodes == ("n1", "n2") and found[3].gpus == 4
    assert found[4].tasks == "0-5,9"
    assert found[12].is_completing
    _, broken = queue.jobs_of("1|1|N/A|RUNNING\n")
    assert broken == [
        "the line '1|1|N/A|RUNNING' of squeue is left out: 11 fields were asked for, 4 came"
    ]


def test_partitions() -> None:
    text, broken = scontrol.partitions_of(sample("22.05", "partition.txt").decode())
    assert broken == []
    assert text[0] == SlurmPartition("gpu", ("n1", "n2", "n3"), ("UP",), "OFF", 1)
    found, _ = document.partitions_of(sample("24.05", "partition.json"))
    assert found[1] == SlurmPartition("other", ("n1", "n2", "n3"), ("UP",), "", 10)


def test_the_settings_that_preemption_depends_on() -> None:
    controls = controls_of(scontrol.config_of(sample("22.05", "config.txt").decode()))
    assert controls.release == (22, 5)
    assert (controls.kill_wait_s, controls.unkillable_s) == (4.0, 60.0)
    assert (controls.min_job_age_s, controls.requeue_delay_s) == (300.0, 121.0)
    assert controls.max_batch_requeue == 5
    assert controls.submit_plugins == ("lua",)
    partitions = [SlurmPartition("gpu", preempt_mode="OFF")]
    assert warnings_of(controls, partitions, ["gpu"]) == []
    codes = [problem.code for problem in warnings_of(controls_of({}), partitions, ["x"])]
    assert codes == ["NoSuchPartition", "NotHeldAtSubmission"]


def test_slurms_own_preemption_is_warned_of() -> None:
    config = {"PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE",
              "JobSubmitPlugins": "lua", "MaxBatchRequeue": "3",
              "SlurmctldParameters": "requeue_delay=40"}  # fmt: skip
    controls = controls_of(config)
    assert (controls.max_batch_requeue, controls.requeue_delay_s) == (3, 40.0)
    partitions = [SlurmPartition("gpu", preempt_mode="REQUEUE"), SlurmPartition("x")]
    assert [p.code for p in warnings_of(controls, partitions, ["gpu"])] == ["SlurmPreempts"]
    quiet = [SlurmPartition("gpu", preempt_mode="OFF")]
    assert warnings_of(controls, quiet, ["gpu"]) == []


# --- what is broken


def test_a_broken_record_is_one_sentence_and_the_others_are_read() -> None:
    whole = json.loads(sample("24.05", "squeue.json"))
    whole["jobs"][0]["time_limit"] = {"set": True, "infinite": False, "number": []}
    del whole["jobs"][1]["job_id"]
    whole["jobs"][2]["nodes"] = "n[1-"
    whole["jobs"][3] = "not an object"
    jobs, broken = document.jobs_of(json.dumps(whole).encode())
    assert len(jobs) == len(whole["jobs"]) - 4
    assert len(broken) == 4
    assert all(sentence.startswith("job ") and "is left out" in sentence for sentence in broken)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (b"", "cannot be read"),
        (b"[]", "is no object"),
        (b"{}", "no list of jobs"),
        (b'{"jobs": {}}', "no list of jobs"),
        (b'{"jobs": [], "errors": [{"description": "out of cheese"}]}', "out of cheese"),
    ],
)
def test_an_answer_that_is_none(answer: bytes, sentence: str) -> None:
    with pytest.raises(BrokenAnswer, match=sentence):
        document.jobs_of(answer)


def test_a_job_cannot_pretend_to_be_another_by_its_name() -> None:
    line = sample("22.05", "job.txt").decode().splitlines()[2]
    forged = line.replace("JobName=two", "JobName=x JobState=COMPLETED Priority=1 two")
    jobs, broken = scontrol.jobs_of(forged)
    assert jobs == []
    assert broken == ["JobId=3 is left out: Priority comes twice"]


def test_a_new_line_in_a_comment_belongs_to_its_record() -> None:
    line = sample("22.05", "job.txt").decode().splitlines()[2]
    jobs, _ = scontrol.jobs_of(line.replace("Comment=lazer", "Comment=first\nlazer") + "\n" + line)
    assert [job.number for job in jobs] == [3, 3]


def test_no_jobs_and_no_nodes() -> None:
    assert scontrol.jobs_of("No jobs in the system\n") == ([], [])
    assert document.jobs_of(b'{"jobs": [], "errors": []}') == ([], [])
    with pytest.raises(BrokenAnswer):
        scontrol.config_of("nothing\n")


def test_a_job_shares_out_what_slurm_does_not_detail() -> None:
    nodes = ("a", "b")
    assert document.held_gpus(nodes, [], "cpu=2,gres/gpu=3") == (Held("a", 2), Held("b", 1))
    assert document.held_gpus(nodes, [], "cpu=2") == ()
    assert document.asked_gpus(2, 1, dict.fromkeys(document.ASKED, "")) == (0, 0)
    per_task = dict.fromkeys(document.ASKED, "") | {"tres_per_task": "gres/gpu:2"}
    assert document.asked_gpus(2, 4, per_task) == (4, 8)


def test_node_states_with_signs() -> None:
    for text, why in (("DOWN*+DRAIN", "is down"), ("IDLE~", ""), ("IDLE*", "does not answer")):
        node = scontrol.node_of({"NodeName": "n1", "State": text, "Gres": "gpu:a100:8(S:0-1)"})
        assert node.gpus == 8
        assert node.why == (f"n1 {why}" if why else "")
    assert SlurmNode("n", 1, ("IDLE", "MAINT")).why == "n is in a maintenance reservation"


def test_infinite_is_not_a_number_of_minutes() -> None:
    fields = json.loads(sample("24.05", "squeue.json"))["jobs"][0]
    fields["time_limit"] = {"set": False, "infinite": True, "number": 0}
    assert document.job_of(fields).limit_s is None
    assert not math.isinf(document.job_of(fields).submitted_s)
