"""A node's sensor and lazerd's receiver over real sockets; the command in a process of its own."""

from __future__ import annotations

import json
import logging
import signal
import struct
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import trio

from lazerd.backend.protocol import Rung
from lazerd.sensor.errors import ProtocolError, SensorError
from lazerd.sensor.fleet import Arrived, Fleet
from lazerd.sensor.handshake import SensorSide
from lazerd.sensor.messages import NONCE_BYTES, Received, Report
from lazerd.sensor.reading import GpuReading, Process, Reading
from lazerd.sensor.receiver import Limits, Receiver
from lazerd.sensor.reporter import Pace, Reporter
from lazerd.sensor.talk import Talk
from tests.fake_nvml.world import FakeNvml, Held

pytest_plugins = ["tests.fake_nvml.fixture"]
pytestmark = pytest.mark.trio

SECRET = b"0123456789abcdef"
WRONG = b"fedcba9876543210"
PACE = Pace(interval_s=0.02, answer_s=2.0, first_wait_s=0.02, longest_wait_s=0.05)
PATIENCE_S = 10.0
NO_LIMITS = Limits()


class Eyes:
    """What a sensor sees: a job whose GPU is as busy as the test says."""

    def __init__(self, job_id: str = "42") -> None:
        self.sm_percent = 0
        self.looks = 0
        self._job_id = job_id

    def __call__(self) -> Reading:
        self.looks += 1
        process = Process(7, self._job_id, 1 << 30, self.sm_percent)
        return Reading((GpuReading(0, "G", processes=(process,)),))


class Scene:
    """lazerd's side, listening, and sensors that are started beside it."""

    def __init__(self, receiver: Receiver, port: int, nursery: trio.Nursery) -> None:
        self.receiver = receiver
        self.port = port
        self.nursery = nursery
        self.streams: list[trio.SocketStream] = []

    def sensor(self, node: str, eyes: Eyes, secret: bytes = SECRET) -> trio.CancelScope:
        scope = trio.CancelScope()

        async def run() -> None:
            with scope:
                await Reporter("127.0.0.1", self.port, node, secret, eyes, PACE).run()

        self.nursery.start_soon(run)
        return scope

    async def stranger(self) -> trio.SocketStream:
        stream = await trio.open_tcp_stream("127.0.0.1", self.port)
        self.streams.append(stream)
        return stream

    async def friend(self, node: str) -> Talk:
        """A connection that has greeted and been welcomed, and sends what the test likes."""
        talk = Talk(await self.stranger())
        side = SensorSide(node, b"n" * NONCE_BYTES, SECRET)
        await talk.send(side.hello())
        while side.state != "open":
            if answer := side.handle(await talk.receive()):
                await talk.send(answer)
                talk.seal(side.keys())
        return talk

    async def next(self) -> Arrived:
        with trio.fail_after(PATIENCE_S):
            return await self.receiver.reports.receive()


@asynccontextmanager
async def scene(limits: Limits = NO_LIMITS) -> AsyncIterator[Scene]:
    receiver = Receiver(SECRET, limits)
    async with trio.open_nursery() as nursery:
        port = await nursery.start(receiver.serve, "127.0.0.1", 0)
        made = Scene(receiver, port, nursery)
        yield made
        for stream in made.streams:
            await stream.aclose()
        nursery.cancel_scope.cancel()


async def closed(stream: trio.abc.ReceiveStream) -> bytes:
    """What the other side still says before it ends the connection."""
    said = b""
    with trio.fail_after(PATIENCE_S), suppress(trio.BrokenResourceError):
        while data := await stream.receive_some(4096):
            said += data
    return said


async def test_set_up_and_execution_over_two_nodes() -> None:
    fleet, eyes = Fleet(), {"a": Eyes(), "b": Eyes()}
    fleet.expect("42", {"a": 1, "b": 1})
    async with scene() as lazerd:
        for node in eyes:
            lazerd.sensor(node, eyes[node])
        for _ in range(10):
            assert fleet.take(await lazerd.next()) == ()
        assert fleet.evidence("42", trio.current_time()).rung is Rung.CONTEXT
        for node in eyes:
            eyes[node].sm_percent = 60
        ended: list[str] = []
        with trio.fail_after(PATIENCE_S):
            while not ended:
                ended += fleet.take(await lazerd.next())
        assert ended == ["42"]
        assert set(lazerd.receiver.nodes) == {"a", "b"}


async def test_a_look_begins_after_the_report_before_was_received() -> None:
    async with scene() as lazerd:
        eyes = Eyes()
        lazerd.sensor("a", eyes)
        first = await lazerd.next()
        assert first.after_s <= first.received_s
        second = await lazerd.next()
        assert second.after_s >= first.received_s
        assert second.after_s <= second.received_s


async def test_a_lazerd_that_is_slow_gets_looks_of_now_and_not_a_backlog() -> None:
    async with scene(Limits(reports=1)) as lazerd:
        eyes = Eyes()
        lazerd.sensor("a", eyes)
        await trio.sleep(0.5)
        assert eyes.looks <= 4


async def test_a_sensor_with_another_secret_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    async with scene() as lazerd:
        with caplog.at_level(logging.WARNING):
            lazerd.sensor("a", Eyes(), WRONG)
            lazerd.sensor("b", Eyes())
            for _ in range(5):
                assert (await lazerd.next()).node == "b"
        assert "does not have the same secret" in caplog.text
        assert lazerd.receiver.nodes == ("b",)


async def test_one_that_only_claims_to_know_the_secret_is_told_no() -> None:
    async with scene() as lazerd:
        talk = Talk(await lazerd.stranger())
        side = SensorSide("a", b"n" * NONCE_BYTES, WRONG)
        await talk.send(side.hello())
        await talk.receive()
        await talk.send(side.hello().__class__(1, "a", b"m" * NONCE_BYTES))
        with trio.fail_after(PATIENCE_S), pytest.raises(SensorError, match="refused"):
            await talk.receive()


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack("!I", 1 << 31),
        struct.pack("!I", 3) + b"\xff\xff\xff",
        b"",
    ],
)
async def test_strangers_who_talk_nonsense_are_shown_out(data: bytes) -> None:
    async with scene(Limits(greeting_s=0.3)) as lazerd:
        stranger = await lazerd.stranger()
        await stranger.send_all(data)
        await closed(stranger)
        lazerd.sensor("a", Eyes())
        assert (await lazerd.next()).node == "a"


async def test_too_many_strangers_do_not_keep_sensors_out_for_long() -> None:
    async with scene(Limits(strangers=3, greeting_s=0.3)) as lazerd:
        strangers = [await lazerd.stranger() for _ in range(10)]
        lazerd.sensor("a", Eyes())
        assert (await lazerd.next()).node == "a"
        for stranger in strangers:
            await closed(stranger)


async def test_one_sensor_too_many_is_told_why() -> None:
    async with scene(Limits(nodes=1)) as lazerd:
        await lazerd.friend("a")
        with pytest.raises(SensorError, match="too many sensors"):
            await lazerd.friend("b")
        await lazerd.friend("a")  # a reconnect takes the place of the connection before


async def test_a_report_out_of_turn_ends_the_connection() -> None:
    async with scene() as lazerd:
        talk = await lazerd.friend("a")
        await talk.send(Report(1, Reading()))
        assert await talk.receive() == Received(1)
        await talk.send(Report(1, Reading()))
        with trio.fail_after(PATIENCE_S), pytest.raises(trio.BrokenResourceError):
            await talk.receive()
        assert (await lazerd.next()).reading == Reading()
        with pytest.raises(trio.WouldBlock):
            lazerd.receiver.reports.receive_nowait()


async def test_a_node_that_is_silent_is_let_go() -> None:
    async with scene(Limits(silence_s=0.2)) as lazerd:
        talk = await lazerd.friend("a")
        assert lazerd.receiver.nodes == ("a",)
        with trio.fail_after(PATIENCE_S), pytest.raises((trio.BrokenResourceError, ProtocolError)):
            await talk.receive()
        assert lazerd.receiver.nodes == ()


async def test_lazerd_comes_back_and_the_sensor_with_it() -> None:
    eyes = Eyes()
    async with scene() as first:
        first.sensor("a", eyes)
        await first.next()
        port = first.port
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Reporter("127.0.0.1", port, "a", SECRET, eyes, PACE).run)
        await trio.sleep(0.2)  # nobody listens
        receiver = Receiver(SECRET)
        await nursery.start(receiver.serve, "127.0.0.1", port)
        with trio.fail_after(PATIENCE_S):
            assert (await receiver.reports.receive()).node == "a"
        nursery.cancel_scope.cancel()


async def test_a_slow_look_stalls_nothing() -> None:
    def look() -> Reading:
        trio.from_thread.run(trio.sleep, 0.5)
        return Reading(problem="late")

    async with scene() as lazerd:
        lazerd.sensor("b", Eyes())
        reporter = Reporter("127.0.0.1", lazerd.port, "a", SECRET, look, PACE)
        lazerd.nursery.start_soon(reporter.run)
        nodes = [(await lazerd.next()).node for _ in range(5)]
        assert nodes == ["b"] * 5


def sensor_command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "from lazerd.sensor.command import main; main()", *arguments]


def start(command: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)


async def test_the_command_reports_what_the_node_sees(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(SECRET)
    secret.chmod(0o600)
    worker = start(["sleep", "60"], {"SLURM_JOB_ID": "42"})
    fake_nvml.gpus[1].processes[worker.pid] = Held(sm_percent=55)
    fake_nvml.write()
    async with scene() as lazerd:
        arguments = [
            *("--lazerd", f"127.0.0.1:{lazerd.port}", "--secret-file", str(secret)),
            *("--node", "gpu-1", "--interval", "0.1"),
        ]
        sensor = start(sensor_command(*arguments), fake_nvml.environment())
        try:
            arrived = await lazerd.next()
            assert arrived.node == "gpu-1"
            assert [len(gpu.processes) for gpu in arrived.reading.gpus] == [0, 1]
            (process,) = arrived.reading.gpus[1].processes
            assert process.pid == worker.pid
            assert process.job_id in ("42", None)  # None where this test is in a pid namespace
            sensor.send_signal(signal.SIGTERM)
            assert await trio.to_thread.run_sync(sensor.wait) == 0
        finally:
            for child in (worker, sensor):
                child.kill()
                child.communicate()


def run(fake: FakeNvml, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        sensor_command(*arguments),
        env=fake.environment(),
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


async def test_once_prints_json(fake_nvml: FakeNvml) -> None:
    fake_nvml.has(3)
    done = await trio.to_thread.run_sync(run, fake_nvml, "--once")
    assert done.returncode == 0
    seen = json.loads(done.stdout)
    assert [gpu["uuid"] for gpu in seen["gpus"]] == [gpu.uuid for gpu in fake_nvml.gpus]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "--lazerd"),
        (("--lazerd", "a:b"), "is not HOST"),
        (("--lazerd", "head", "--secret-file", "/nonexistent"), "cannot read the secret"),
    ],
)
async def test_what_is_wrong_is_one_sentence(
    fake_nvml: FakeNvml, arguments: tuple[str, ...], says: str
) -> None:
    done = await trio.to_thread.run_sync(run, fake_nvml, *arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
