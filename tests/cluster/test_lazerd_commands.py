"""`lazer` and `lazerd` as people use them: one machine, no GPU, real processes."""

from __future__ import annotations

import grp
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lazerd.client import Client
from lazerd.errors import NotAllowed
from tests.lazerd_at_work import Lazerd, as_json, columns, lazerd

WAITS = "import time; time.sleep(60)"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Lazerd]:
    with lazerd(tmp_path) as made:
        yield made


def test_submit_queue_explain_history(daemon: Lazerd) -> None:
    assert daemon.run("submit", "--gpus", "4", "--", "sleep", "60") == "Submitted job 1\n"
    assert (
        daemon.run("submit", "--parsable", "--gpus", "2", "--name", "mine", "--", "true") == "2\n"
    )
    assert as_json(daemon.run("submit", "--json", "--", "true")) == {"job": "3"}
    daemon.until_state("1", "setup")
    assert columns(daemon.run("queue"))[2][:5] == ["2", "mine", "root", "2", "pending"]
    first, second = daemon.run("queue", "--parsable").splitlines()[1:3]
    assert first.startswith("1|sleep|") and second.startswith("2|mine|")
    rows = as_json(daemon.run("queue", "--json"))
    assert [row["job"] for row in rows] == ["1", "2", "3"]
    assert all(row["reason"] for row in rows[1:])
    shown = daemon.run("explain", "2")
    assert "Job 2 (mine) of root, 2 GPUs" in shown and rows[1]["reason"] in shown
    daemon.run("cancel", "1")
    daemon.until(lambda: {"1", "2", "3"} <= set(daemon.history()))
    past = as_json(daemon.run("history", "--json"))
    assert {job["job"]: job["end"] for job in past} == {
        "1": "cancelled",
        "2": "ended",
        "3": "ended",
    }
    assert "true" in daemon.run("history")
    assert "jobs: none" in daemon.run("status")


def test_hold_and_release(daemon: Lazerd) -> None:
    daemon.submit("sleep", "60", gpus=4)
    waiting = daemon.submit("true")
    daemon.run("hold", waiting)
    assert daemon.rows()[waiting]["reason"] == "Held"
    daemon.run("cancel", "1")
    daemon.until(lambda: "1" in daemon.history())
    assert daemon.rows()[waiting]["state"] == "held"
    daemon.run("release", waiting)
    daemon.until(lambda: waiting in daemon.history())


def test_one_of_several_jobs_has_ended(daemon: Lazerd) -> None:
    jobs = [daemon.submit("sleep", "60"), daemon.submit("true"), daemon.submit("sleep", "60")]
    daemon.until(lambda: jobs[1] in daemon.history())
    said = daemon.run("cancel", *jobs, code=1)
    assert said == "lazer: there is no job 2 that has not ended"
    daemon.until(lambda: set(jobs) == set(daemon.history()))


def test_the_job_finds_what_it_needs(daemon: Lazerd) -> None:
    job = daemon.run(
        "submit", "--parsable", "--gpus", "2", "-o", "out-%j", "--", "sh", "-c",
        "echo $LAZER_JOB_ID $CUDA_VISIBLE_DEVICES $LAZER_ATTEMPT; pwd; echo $MARK; lazer working",
    )  # fmt: skip
    daemon.until(lambda: job.strip() in daemon.history())
    said = (daemon.directory / "out-1").read_text()
    assert said == f"1 0,1 1\n{daemon.directory}\n\n"


def test_nodes_and_status_say_what_is_used(daemon: Lazerd) -> None:
    job = daemon.submit("sleep", "60", gpus=3)
    daemon.until_state(job, "setup")
    (node,) = as_json(daemon.run("nodes", "--json"))
    assert (node["gpus"], node["free"], node["jobs"]) == (4, 1, ["1"])
    daemon.working(job)
    status = as_json(daemon.run("status", "--json"))
    assert status["jobs"] == {"working": 1}
    assert [gpu["job"] for gpu in status["facts"]["gpus"]] == ["1", "1", "1", None]
    assert status["since_start"]["starts"] == 1 and status["problems"] == []


def test_more_gpus_than_there_are(daemon: Lazerd) -> None:
    said = daemon.run("submit", "--gpus", "5", "--", "true", code=2)
    assert said == "lazer: the job asks for 5 GPUs; there are 4"
    assert daemon.rows() == {}


def test_a_command_that_does_not_exist(daemon: Lazerd) -> None:
    job = daemon.submit("no-such-command")
    ended = daemon.until_state(job, "ended")
    assert (ended["exit_code"], ended["detail"]) == (
        127,
        "no-such-command: No such file or directory",
    )


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("explain", "77"), 1, "lazer: there is no job 77"),
        (("cancel", "77"), 1, "lazer: there is no job 77 that has not ended"),
        (("release", "1"), 1, "lazer: job 1 is not held"),
        (("hold", "1"), 1, "lazer: job 1 is not pending: only such a job can be held"),
        (("working",), 2, "lazer: this is not within a job (LAZER_JOB_ID is not set): name one"),
        (("submit", "--signal", "NOPE", "--", "x"), 2, "lazer: submit: 'NOPE' is not a signal"),
        (("history", "-n", "0"), 2, "lazer: the limit is from 1 to 10000, not 0"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    daemon: Lazerd, arguments: tuple[str, ...], code: int, said: str
) -> None:
    daemon.submit("sleep", "60")
    daemon.until_state("1", "setup")
    assert daemon.run(*arguments, code=code).startswith(said)


def test_usage_and_no_daemon(tmp_path: Path) -> None:
    nobody = Lazerd(tmp_path)
    assert "no such option" in nobody.run("queue", "--nope", code=2).lower()
    assert "is not running" in nobody.run("queue", code=3)


def test_completion_names_commands_and_jobs(daemon: Lazerd) -> None:
    daemon.submit("sleep", "60")
    for words, index, expected in (("lazer ", "1", "explain"), ("lazer explain ", "2", "1")):
        done = subprocess.run(
            [sys.executable, "-c", "from lazerd.cli import main; main()"],
            env=daemon.environment()
            | {"_LAZER_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": index},
            capture_output=True,
            text=True,
            check=False,
        )
        assert f"plain,{expected}" in done.stdout.split(), done


def test_one_daemon_for_a_store(daemon: Lazerd) -> None:
    code, said = daemon.refuses()
    assert code == 1 and said == f"lazerd: another lazerd runs with {daemon.state}"


def test_local_and_a_configuration_are_two_things(tmp_path: Path) -> None:
    code, said = Lazerd(tmp_path, 4, "-c", "x").refuses()
    assert (code, said) == (2, "lazerd: --local needs no configuration: give one of --local and -c")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[local]\ngpu = 4\n", "local.gpu: unknown key"),
        ("[local]\ngpus = 0\n", "local.gpus: must be 1 or more"),
        ('[local]\ngpus = "four"\n', "local.gpus: Expected `int | null`, got `str`"),
        ('[policy]\nname = "fifo/nope"\n', "policy.name: no variant 'nope'"),
        ('[jobs]\nsignal = "NOPE"\n', "jobs.signal: 'NOPE' is not a signal"),
        ('[jobs]\ngrace = "soon"\n', "jobs.grace: 'soon' is not a duration"),
        ('backend = "slurm"\n', "slurm.partitions: names no partition to steer"),
        ("[local\n", "not valid TOML"),
    ],
)
def test_a_broken_configuration_names_file_and_key(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "lazer.toml"
    path.write_text(text)
    made = Lazerd(tmp_path)
    made.options = ["-c", str(path)]
    code, heard = made.refuses()
    assert code == 2
    assert heard.startswith(f"lazerd: {path}: {said}"), heard


@pytest.mark.root
def test_another_users_jobs_are_neither_seen_nor_touched(daemon: Lazerd) -> None:
    job = daemon.submit("sleep", "60")
    program = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from lazerd.client import Client\n"
        "from lazerd.errors import LazerError\n"
        "client = Client(Path(sys.argv[1]))\n"
        "import lazerd.client\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "print(client.ask('queue'))\n"
        "for verb, what in (('explain', {'job': '1'}), ('cancel', {'jobs': ['1']}),\n"
        "                   ('working', {'job': '1'}), ('hold', {'jobs': ['1']})):\n"
        "    try:\n"
        "        client.ask(verb, **what)\n"
        "    except LazerError as error:\n"
        "        print(type(error).__name__, error)\n"
    )
    open_to_all(daemon.state)
    done = subprocess.run(
        [sys.executable, "-c", program, str(daemon.socket)],
        capture_output=True,
        text=True,
        check=False,
        env=daemon.environment() | {"PYTHONDONTWRITEBYTECODE": "1"},
    )
    refused = f"{NotAllowed.__name__} job {job} belongs to another user"
    assert done.stdout.splitlines() == ["[]", *[refused] * 4], done
    assert daemon.rows()[job]["state"] in ("pending", "setup")


@pytest.mark.root
def test_members_of_the_operators_group_touch_everybodys_jobs(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; from lazerd.client import Client\n"
        "os.setgid(65534); os.setuid(65534); client = Client(Path(sys.argv[1]))\n"
        "print([row['job'] for row in client.ask('queue')]); client.ask('cancel', jobs=['1'])\n"
    )
    more = f'[daemon]\noperators = "{grp.getgrgid(65534).gr_name}"\n'
    with lazerd(tmp_path, policy="fifo", more=more) as daemon:
        daemon.submit("sleep", "60")
        open_to_all(daemon.state)
        done = subprocess.run(
            [sys.executable, "-c", program, str(daemon.socket)],
            capture_output=True,
            text=True,
            check=False,
            env=daemon.environment() | {"PYTHONDONTWRITEBYTECODE": "1"},
        )
        assert done.stdout == "['1']\n", done
        assert daemon.until_state("1", "ended")["cancelled"]


@pytest.mark.root
def test_a_users_job_runs_as_that_user(daemon: Lazerd) -> None:
    open_to_all(daemon.directory)
    daemon.directory.chmod(0o777)
    program = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from lazerd.client import Client\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "print(Client(Path(sys.argv[1])).ask('submit', command=['id', '-u'], directory=sys.argv[2],"
        " environment={'PATH': os.environ['PATH']}, output='%j.out')['job'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(daemon.socket), str(daemon.directory)],
        capture_output=True,
        text=True,
        check=True,
        env=daemon.environment(),
    )
    job = done.stdout.strip()
    daemon.until_state(job, "ended")
    assert daemon.output(job) == "65534\n"
    assert (daemon.directory / f"{job}.out").stat().st_uid == 65534
    assert daemon.explain(job)["user"] == "nobody"


def open_to_all(path: Path) -> None:
    for parent in (path, *path.parents):
        if parent.stat().st_uid == os.geteuid() and "pytest" in str(parent):
            parent.chmod(0o755)


def test_nonsense_at_the_socket_is_answered(daemon: Lazerd) -> None:
    import socket

    for line in (b"nonsense\n", b"[]\n", b'{"verb": "no"}\n', b'{"verb": "queue", "x": 1}\n'):
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(str(daemon.socket))
            link.sendall(line)
            assert b'"UsageError"' in link.recv(1 << 16)
    assert Client(daemon.socket).ask("queue") == []
