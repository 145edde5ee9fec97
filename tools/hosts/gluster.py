"""GlusterFS as the shared file system: one brick on a storage host, a client on each host.

glusterd works below the cluster's home, with a socket of its own there, so that several clusters
and a glusterd of the machine do not know each other. Two things it puts elsewhere whatever it is
told, the log and the socket of its brick; `litter` names them.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path

from tools.hosts.errors import ClusterError
from tools.hosts.place import Place
from tools.hosts.sharedfs import detach_from, must_answer, source_of
from tools.hosts.spec import STORAGE, STORAGE_NUMBER, Spec, address
from tools.hosts.system import system
from tools.hosts.wiring import Wiring

VOLUME = "shared"
STARTS_S = 30.0
_PORT = 24007  # of glusterd; clients ask there for the volume file
_LOOK_EVERY_S = 0.05
_SOCKETS = Path("/run/gluster")
_LOGS = Path("/var/log/glusterfs/bricks")


class Gluster:
    """The volume `shared`, served by the host `storage`."""

    def __init__(self, spec: Spec, wiring: Wiring) -> None:
        self.storage = Place(
            STORAGE, spec.namespace(STORAGE), spec.home_of_host(STORAGE), seclusion=None
        )
        self._wiring = wiring
        self._address = address("pfs", STORAGE_NUMBER)

    def prepare(self) -> None:
        """Start glusterd, make the volume and start it. Raises `ClusterError`."""
        home = self.storage.home
        for name in ("work", "run", "log", "brick"):
            (home / name).mkdir(parents=True)
        _must_take_trusted_xattrs(home / "brick")
        (home / "glusterd.vol").write_text(self._volume_file())
        self._wiring.plug(self.storage, STORAGE_NUMBER)
        files = f"-f {home}/glusterd.vol -p {home}/run/glusterd.pid -l {home}/log/glusterd.log"
        system(*self.storage.inside(["glusterd", *files.split()]), limit_s=STARTS_S)
        self._wait_for_socket()
        self._gluster("create", VOLUME, f"{self._address}:{home}/brick", "force")
        self._gluster("start", VOLUME)

    def _volume_file(self) -> str:
        home = self.storage.home
        options = {
            "working-directory": home / "work",
            "run-directory": home / "run",
            "glusterd-sockfile": self._socket,
            "transport-type": "socket",
            "transport.socket.listen-port": _PORT,
            "transport.socket.read-fail-log": "off",
            "max-port": 60999,
        }
        lines = "".join(f"    option {key} {value}\n" for key, value in options.items())
        return f"volume management\n    type mgmt/glusterd\n{lines}end-volume\n"

    @property
    def _socket(self) -> Path:
        return self.storage.home / "glusterd.sock"

    def _wait_for_socket(self) -> None:
        deadline = time.monotonic() + STARTS_S
        while not self._socket.exists():
            if time.monotonic() > deadline:
                raise ClusterError(f"glusterd does not answer; see {self.storage.home}/log")
            time.sleep(_LOOK_EVERY_S)

    def _gluster(self, *verb: str) -> None:
        log = self.storage.home / "log/cli.log"
        command = ["gluster", f"--glusterd-sock={self._socket}", f"--log-file={log}"]
        system(*self.storage.inside([*command, "--mode=script", "volume", *verb]), limit_s=STARTS_S)

    def attach(self, place: Place) -> None:
        """Start the client of a host. Raises `ClusterError`."""
        detach_from(place)
        source_of(place).mkdir(exist_ok=True)
        volume = [f"--volfile-server={self._address}", f"--volfile-id={VOLUME}"]
        log = ["-l", str(place.home / "glusterfs.log")]
        client = ["glusterfs", *volume, *log, str(source_of(place))]
        system(*place.inside(client), limit_s=STARTS_S)
        must_answer(place)

    def block(self, place: Place) -> None:
        """Pull the host's cable to the storage."""
        self._wiring.cut(place, "pfs")

    def unblock(self, place: Place) -> None:
        """Plug it in."""
        self._wiring.mend(place, "pfs")

    def is_blocked(self, place: Place) -> bool:
        """Whether it is pulled."""
        return self._wiring.is_cut(place, "pfs")


def _must_take_trusted_xattrs(brick: Path) -> None:
    try:
        os.setxattr(brick, b"trusted.cachexfs", b"1")
        os.removexattr(brick, b"trusted.cachexfs")
    except OSError:
        raise ClusterError(
            f"GlusterFS needs trusted xattrs, which the file system of {brick.parents[3]} does not "
            f"keep; name a directory on ext4 or xfs with CACHEXFS_CLUSTERS=DIRECTORY"
        ) from None


def litter(home: Path, pids: Iterable[int]) -> list[Path]:
    """What will be left of bricks below `home` outside of it; asked before they are killed."""
    storage = str(home / "hosts" / STORAGE / "brick")
    found = [_LOGS / f"{storage.strip('/').replace('/', '-')}.log"]
    for pid in pids:
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"--brick-name" in words and os.fsencode(storage) in words:
                found.append(Path(os.fsdecode(words[words.index(b"-S") + 1])))
    return [path for path in found if path.parent.resolve() in (_SOCKETS, _LOGS)]
