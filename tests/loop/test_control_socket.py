"""The control socket: who may ask for what, and that nobody can wear the daemon out."""

from __future__ import annotations

import errno
import json
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from cachexfs import listening
from cachexfs.control import server
from cachexfs.control.server import CHANGING, MAX_OF_USER, serve

pytestmark = pytest.mark.trio
SOMEBODY = 1234


class Place:
    """A socket with a verb of each kind."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.called: list[str] = []

    def verbs(self) -> dict[str, Any]:
        return {name: self._verb(name) for name in ("ls", "wait", *CHANGING)}

    def _verb(self, name: str) -> Any:
        async def verb(**arguments: object) -> str:
            self.called.append(name)
            if name == "wait":
                await trio.sleep_forever()
            return name

        return verb

    async def ask(self, request: bytes) -> Any:
        async with await trio.open_unix_socket(str(self.path)) as stream:
            with trio.fail_after(5):
                await stream.send_all(request)
                return json.loads(await everything(stream))


async def everything(stream: trio.SocketStream) -> bytes:
    return b"".join([part async for part in stream])


@pytest.fixture
async def place(nursery: trio.Nursery, tmp_path: Path) -> AsyncIterator[Place]:
    made = Place(tmp_path / "control.sock")
    await nursery.start(serve, made.path, made.verbs())
    yield made
    nursery.cancel_scope.cancel()


def asked(verb: str) -> bytes:
    return json.dumps({"verb": verb}).encode() + b"\n"


@pytest.mark.parametrize("verb", sorted(CHANGING))
async def test_only_root_and_the_daemons_user_change_anything(
    place: Place, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    assert await place.ask(asked(verb)) == {"answer": verb}
    monkeypatch.setattr(server, "_asker", lambda stream: SOMEBODY)
    assert await place.ask(asked(verb)) == {
        "error": "NotAllowed", "detail": f"only root may {verb}",
    }  # fmt: skip
    assert await place.ask(asked("ls")) == {"answer": "ls"}
    assert place.called == [verb, "ls"]


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
async def test_the_kernel_says_who_asks(place: Place, tmp_path: Path) -> None:
    """A real process of another user, which says what it likes of itself."""
    for directory in [tmp_path, *tmp_path.parents][:-2]:
        directory.chmod(directory.stat().st_mode | 0o011)
    reader, writer = os.pipe()
    request = json.dumps({"verb": "evict", "uid": 0}).encode() + b"\n"
    child = os.fork()
    if child == 0:
        os.setgid(SOMEBODY)
        os.setuid(SOMEBODY)
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        link.connect(str(place.path))
        link.sendall(request)
        os.write(writer, link.recv(1000))
        os._exit(0)
    os.close(writer)
    answer = await trio.to_thread.run_sync(os.read, reader, 1000)
    os.close(reader)
    await trio.to_thread.run_sync(os.waitpid, child, 0)
    assert json.loads(answer) == {"error": "NotAllowed", "detail": "only root may evict"}
    assert place.called == []


@pytest.mark.parametrize(
    "request_", [b"\n", b"null\n", b"[]\n", b'{"verb": 1}\n', b'{"verb": "rm"}\n', b"\xff\xfe\n",
                 b'{"verb": []}\n', b"[" * 100_000 + b"\n", b'{"a": 1}\n'],
)  # fmt: skip
async def test_nonsense_is_answered_and_harms_nothing(place: Place, request_: bytes) -> None:
    assert (await place.ask(request_))["error"] == "UsageError"
    assert await place.ask(asked("ls")) == {"answer": "ls"}


async def test_one_user_cannot_keep_others_out(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    asker = [SOMEBODY]
    monkeypatch.setattr(server, "_asker", lambda stream: asker[0])
    held = []
    for _ in range(MAX_OF_USER):
        held.append(await trio.open_unix_socket(str(place.path)))
        await held[-1].send_all(asked("wait"))
    await trio.testing.wait_all_tasks_blocked()
    answer = await place.ask(asked("ls"))
    assert answer == {
        "error": "Busy", "detail": f"{MAX_OF_USER} questions of this user are being answered",
    }  # fmt: skip
    asker[0] = SOMEBODY + 1
    assert await place.ask(asked("ls")) == {"answer": "ls"}
    asker[0] = SOMEBODY
    await held.pop().aclose()
    await trio.testing.wait_all_tasks_blocked()
    assert await place.ask(asked("ls")) == {"answer": "ls"}
    for stream in held:
        await stream.aclose()


async def test_who_connects_and_says_nothing_is_sent_away(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "REQUEST_S", 0.2)
    async with await trio.open_unix_socket(str(place.path)) as stream:
        await stream.send_all(b'{"verb":')
        with trio.fail_after(3):
            assert await everything(stream) == b""


class Listener:
    """A socket that cannot take a connection."""

    def __init__(self, why: int) -> None:
        self._why = why

    async def accept(self) -> Any:
        raise OSError(self._why, os.strerror(self._why))


async def test_no_descriptor_left_is_not_the_end_of_the_daemon() -> None:
    assert await listening.accept(Listener(errno.EMFILE)) is None  # type: ignore[arg-type]
    with pytest.raises(OSError):
        await listening.accept(Listener(errno.EBADF))  # type: ignore[arg-type]
