"""Running commands: what hangs, fails or is missing says nothing about a job (CASES 35)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from lazerd.backend.protocol import BackendBack, BackendLost, NodeUp, Report, Submission, Together
from lazerd.backend.slurm.backend import Options, SlurmBackend
from lazerd.backend.slurm.commands import Commands
from lazerd.backend.slurm.errors import NoSuchJob, Unreachable
from lazerd.backend.slurm.roster import Roster

pytestmark = pytest.mark.trio
SAMPLES = Path(__file__).parent / "slurm"

Program = Callable[[str, str], None]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Puts a shell script in front of everybody else's in PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def write(name: str, script: str) -> None:
        fresh = folder / f".{name}"
        fresh.write_text(f"#!/bin/sh\n{script}\n")
        fresh.chmod(0o755)
        fresh.replace(folder / name)

    return write


async def test_a_command_that_hangs_is_ended(program: Program) -> None:
    program("squeue", "exec sleep 60")
    began_s = time.monotonic()
    with pytest.raises(Unreachable, match=r"did not answer within 0\.2 s"):
        await Commands(limit_s=0.2).run(("squeue", "--json"))
    assert time.monotonic() - began_s < 5


async def test_what_is_not_installed_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Unreachable, match="is not installed here"):
        await Commands().run(("squeue-that-is-nowhere",))


async def test_errors_by_the_table(program: Program) -> None:
    program("scontrol", "echo 'slurm_update error: Invalid job id specified' >&2; exit 1")
    with pytest.raises(NoSuchJob):
        await Commands().run(("scontrol", "update", "JobId=7"))


async def test_what_a_person_has_set_changes_nothing(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SQUEUE_FORMAT", "%i")
    monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")
    program("squeue", 'echo "$SQUEUE_FORMAT|$SLURM_TIME_FORMAT|$SLURM_BITSTR_LEN|$SLURM_CONF"')
    assert await Commands(conf="/etc/x").run(("squeue",)) == b"|standard|0|/etc/x\n"


def _answers(program: Program, release: str) -> None:
    folder = SAMPLES / release
    jobs, nodes = folder / "squeue.json", folder / "node.json"
    version = f"SLURM_VERSION = {release}.0"
    program("squeue", f"cat {jobs}")
    program("sinfo", f"cat {SAMPLES}/24.05/sinfo.json")
    program(
        "scontrol",
        f'case "$*" in *config*) echo "{version}"; echo "JobSubmitPlugins = lua";;'
        f" *partition*) cat {SAMPLES}/22.05/partition.txt;; *node*) cat {nodes};; esac",
    )
    program("scancel", "exit 0")


@pytest.mark.parametrize("release", ["23.11", "24.05", "25.05"])
async def test_a_backend_on_the_samples_of_a_release_lost_and_back(
    program: Program, release: str
) -> None:
    _answers(program, release)
    backend = SlurmBackend(["gpu"], Options(poll_s=0.05, command_s=5.0))
    sender, receiver = trio.open_memory_channel[Report | Together](256)
    heard: list[Report] = []
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            await nursery.start(backend.watch, sender)
            await _until(receiver, heard, Submission)
            assert len([r for r in heard if isinstance(r, NodeUp)]) == 3
            program("squeue", "echo 'Unable to contact slurm controller' >&2; exit 1")
            await _until(receiver, heard, BackendLost)
            assert [problem.code for problem in backend.problems()][:1] == ["SlurmUnreachable"]
            _answers(program, release)
            await _until(receiver, heard, BackendBack)
            assert backend.facts()["reads"] == "json"
            nursery.cancel_scope.cancel()


async def _until(
    receiver: trio.MemoryReceiveChannel[Report | Together], heard: list[Report], kind: type
) -> None:
    while not any(isinstance(report, kind) for report in heard):
        report = await receiver.receive()
        heard += report.reports if isinstance(report, Together) else (report,)


async def test_nodes_keep_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "slurm-nodes"
    Roster(path).enrol(["b", "d"])
    again = Roster(path)
    again.enrol(["a", "b", "c", "d"])
    assert [again.number(name) for name in "bdac"] == [0, 1, 2, 3]
    assert again.nodes_of(((3, 8), (0, 8))) == ("c", "b")
    assert again.number("z") is None
