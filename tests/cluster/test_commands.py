"""The commands on real mounts: what they print, how they end, what bad input leaves behind."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cachexfs.cli import COMMANDS
from cachexfs.demo.mountpoints import mounted
from tests.cluster_of_nodes import Node, eventually, nodes, run

pytestmark = pytest.mark.fuse

SECRET = "a secret of sixteen bytes and more"


def fails(code: int, *arguments: str | Path, notes: int = 0) -> str:
    """`cachexfs ARGUMENTS` ends with `code` and one sentence, after so many notes on its way."""
    done = run(*arguments, check=False)
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr and "Error:" not in done.stdout
    said = done.stderr.strip().splitlines()
    assert said, "not a word"
    if not said[0].startswith("Usage:"):
        assert len(said) == 1 + notes and said[-1].startswith("cachexfs: "), said
    return done.stderr


def processes_about(directory: Path) -> list[str]:
    """Command lines of living processes that name a directory."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(directory) in line:
            found.append(line)
    return found


@contextlib.contextmanager
def held_open(path: Path, size: int) -> Iterator[None]:
    """A new file of so many bytes that another process holds open.

    Not this one: the children that it starts would close it, which counts as a close.
    """
    code = "import sys; f = open(sys.argv[1], 'wb', 0); f.write(bytes(int(sys.argv[2])))"
    holder = subprocess.Popen(
        [sys.executable, "-c", code + "; print(flush=True); input()", str(path), str(size)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdin is not None and holder.stdout is not None
    try:
        assert holder.stdout.readline() == b"\n"
        yield
    finally:
        holder.stdin.write(b"\n")
        holder.communicate()


@pytest.fixture
def nothing_left(tmp_path: Path) -> Iterator[None]:
    """No mount, no tmpfs, no process, no RAM tier is left by the test."""
    yield
    assert not [mount for mount in mounted() if mount.path.is_relative_to(tmp_path)]
    assert not processes_about(tmp_path)
    assert not list(tmp_path.glob("state/*/ram")) and not list(tmp_path.glob("state/*/*.sock"))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A source, a mount point and a configuration that is right."""
    (tmp_path / "source").mkdir()
    (tmp_path / "mnt").mkdir()
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "secret").chmod(0o600)
    write_config(tmp_path)
    return tmp_path


def write_config(at: Path, *lines: str) -> Path:
    """A configuration file: the state directory, and `lines`."""
    path = at / "c.toml"
    path.write_text("\n".join([f'[node]\nname = "n"\nstate_dir = "{at}/state"', *lines]) + "\n")
    return path


def mount_fails(at: Path, code: int, *extra: str, source: str = "source", to: str = "mnt") -> str:
    """A mount that cannot be; the sentence."""
    return fails(code, "mount", at / source, at / to, "-c", at / "c.toml", *extra)


PEERS = '[[peers]]\nname = "other"\naddress = "127.0.0.1:1"'


# -- bad input


@pytest.mark.usefixtures("nothing_left")
def test_directories_that_cannot_be_mounted(place: Path) -> None:
    (place / "file").write_text("x")
    (place / "full").mkdir()
    (place / "full" / "file").write_text("x")
    assert "No such file" in mount_fails(place, 2, source="missing")
    assert "not a directory" in mount_fails(place, 2, source="file")
    assert "No such file" in mount_fails(place, 2, to="missing")
    assert "not a directory" in mount_fails(place, 2, to="file")
    assert "not empty" in mount_fails(place, 2, to="full")


@pytest.mark.usefixtures("nothing_left")
def test_a_source_below_its_own_mount_point_or_the_same_is_refused(place: Path) -> None:
    (place / "mnt2" / "source").mkdir(parents=True)
    mount_fails(place, 2, source="mnt2/source", to="mnt2")
    mount_fails(place, 2, source="mnt", to="mnt")
    (place / "source" / "mnt").mkdir()
    mount_fails(place, 2, to="source/mnt")


@pytest.mark.usefixtures("nothing_left")
@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ('[mount]\nfsink = "durable"', "mount.fsink: unknown key"),
        ("[monut]", "monut: unknown key"),
        ('[ram]\nlimit = "900TiB"', "ram.limit: is larger than the memory"),
        ('[ram]\nlimit = "lots"', "ram.limit"),
        ('[ram]\nlimit = "1KiB"', "ram.limit"),
        ('[mount]\nfsync = "replicated"', "mount.fsync"),
        ('[mount]\nfsync = "often"', "mount.fsync"),
        ('[mount]\npfs_timeout = "-1s"', "mount.pfs_timeout"),
        ("[replication]\nreplicas = 9", "replication.replicas"),
        (PEERS + "\n" + PEERS, "two members have the same name"),
        ('[[peers]]\nname = "other"\naddress = "nowhere"', "peers[0].address"),
        ("[[[", "not valid TOML"),
    ],
)
def test_a_configuration_that_is_wrong(place: Path, lines: str, says: str) -> None:
    config = write_config(place, lines)
    assert says in mount_fails(place, 2)
    said = fails(2, "config", "check", "-c", config)
    assert says in said and str(config) in said


@pytest.mark.usefixtures("nothing_left")
def test_a_secret_that_is_missing_short_or_unreadable(place: Path) -> None:
    secret = place / "secret"
    write_config(place, PEERS, f'[security]\nsecret_file = "{secret}"')
    secret.unlink()
    assert "secret" in mount_fails(place, 2)
    secret.mkdir()
    assert "secret" in mount_fails(place, 2)
    secret.rmdir()
    secret.write_text("short")
    assert "shorter than 16 bytes" in mount_fails(place, 2)
    assert "shorter" in fails(2, "config", "check", "-c", place / "c.toml")
    write_config(
        place, '[peer]\nlisten = "127.0.0.1:0"\nstore = "store"',
        f'[security]\nsecret_file = "{secret}"',
    )  # fmt: skip
    assert "shorter" in fails(2, "peer", "-c", place / "c.toml")


@pytest.mark.usefixtures("nothing_left")
def test_a_configuration_file_that_is_not_there(place: Path) -> None:
    assert "c2.toml" in fails(2, "mount", place / "source", place / "mnt", "-c", place / "c2.toml")
    assert "c2.toml" in fails(2, "status", "-c", place / "c2.toml")


@pytest.mark.usefixtures("nothing_left")
def test_a_state_directory_that_cannot_be(place: Path) -> None:
    (place / "file").write_text("x")
    (place / "c.toml").write_text(f'[node]\nstate_dir = "{place}/file/state"\n')
    assert "state_dir" in mount_fails(place, 1)


@pytest.mark.usefixtures("nothing_left")
def test_recovering_from_nobody(place: Path) -> None:
    config = write_config(place, f'[security]\nsecret_file = "{place}/secret"')
    to = place / "to"
    fails(2, "recover", "--to", to, "-c", config)
    fails(2, "recover", "-c", config)
    fails(2, "recover", place, "--to", to, "-c", config)
    nobody = ("recover", "--to", to, "--from", "127.0.0.1:1", "-c", config)
    assert "no peer answers: 127.0.0.1:1" in fails(1, *nobody, notes=1)
    fails(2, "recover", "--to", to, "--from", "nobody", "-c", config)
    assert not to.exists() or not os.listdir(to)


def test_what_is_not_on_a_mount(tmp_path: Path) -> None:
    for command in ("ls", "verify", "evict", "pin", "unpin", "umount"):
        assert str(tmp_path) in fails(4, command, tmp_path)
    assert str(tmp_path) in fails(4, "wait", tmp_path, "--for", "durable")
    assert str(tmp_path) in fails(4, "status", tmp_path)
    fails(4, "status", tmp_path / "missing" / "deeper")
    if not [mount for mount in mounted() if mount.fs_type == "fuse.cachexfs"]:
        fails(3, "status", "-c", write_config(tmp_path))


def test_wrong_command_lines() -> None:
    for line in (
        ["nonsense"], ["mount"], ["mount", "a"], ["wait", "x"], ["wait", "--for", "durable"],
        ["wait", "x", "--for", "safe"], ["umount", "x", "--for", "lost"], ["status", "--jsno"],
        ["umount", "x", "--timeout", "soon"], ["config"], ["config", "frobnicate"],
        ["mount", "a", "b", "-o", "frobnicate"], ["ls"],
    ):  # fmt: skip
        fails(2, *line)


def test_help_and_version() -> None:
    said = run("--help").stdout
    assert all(re.search(rf"^  {command} ", said, re.MULTILINE) for command in COMMANDS)
    assert re.fullmatch(r"cachexfs, version \S+\n", run("--version").stdout)
    for command in COMMANDS:
        assert "Usage: cachexfs " + command in run(command, "--help").stdout


# -- a mount


def test_a_mount_point_in_use(node: Node) -> None:
    said = fails(2, "mount", node.source, node.mountpoint, "-c", node.config)
    assert "in use" in said
    (node.mountpoint / "still").write_text("alive")


STATUS_KEYS = {
    "mountpoint", "source", "node", "state", "data_path", "data_path_reason", "problems", "ram",
    "unsafe_bytes", "oldest_unsafe_s", "peers", "files", "pending",
}  # fmt: skip
FILE_KEYS = {
    "path", "size_bytes", "state", "flushed_bytes", "replicas", "age_s", "eta_replicated_s",
    "eta_durable_s",
}  # fmt: skip


def test_status_as_json(pair: tuple[Node, Node]) -> None:
    a, _ = pair
    with held_open(a.mountpoint / "open", 1000):
        report = json.loads(run("status", "--json", a.mountpoint).stdout)
        assert report["schema"] == 1 and report["version"]
        (mount,) = report["mounts"]
        assert mount.keys() >= STATUS_KEYS
        assert mount["state"] == "ok" and mount["problems"] == [] and mount["node"] == "a"
        assert mount["ram"]["limit_bytes"] == 1 << 30 and mount["ram"]["used_bytes"] > 0
        assert mount["files"] == {"open": 1} | dict.fromkeys(
            ("captured", "replicated", "durable", "lost"), 0
        )
        (pending,) = mount["pending"]
        assert pending.keys() >= FILE_KEYS
        assert (pending["path"], pending["size_bytes"], pending["state"]) == ("open", 1000, "open")
        (peer,) = mount["peers"]
        assert peer.keys() >= {"name", "address", "state", "behind_bytes"}
        assert (peer["name"], peer["state"]) == ("b", "up")
    a.wait("durable")
    assert a.ls()[0].keys() >= FILE_KEYS and a.ls()[0]["state"] == "durable"
    everywhere = json.loads(run("status", "--json", "-c", a.config).stdout)
    assert str(a.mountpoint) in {mount["mountpoint"] for mount in everywhere["mounts"]}
    text = run("status", a.mountpoint).stdout
    assert str(a.mountpoint) in text and "peer       b" in text
    assert "durable" in run("ls", a.mountpoint / "open").stdout
    fails(4, "status", a.mountpoint / "open")
    fails(1, "ls", a.mountpoint / "missing")


def test_status_as_a_monitoring_plugin(pair: tuple[Node, Node], tmp_path: Path) -> None:
    a, b = pair
    done = run("status", "--check", a.mountpoint)
    assert done.stdout.startswith("CACHEXFS OK")
    b.stop_peer()
    eventually(lambda: a.report()["state"] == "degraded", "degradation", 10)
    done = run("status", "--check", a.mountpoint, check=False)
    assert done.returncode == 1 and done.stdout.startswith("CACHEXFS WARNING - Peer")
    done = run("status", "--check", tmp_path, check=False)
    assert done.returncode == 3 and done.stdout.startswith("CACHEXFS UNKNOWN")


def test_status_does_not_import_an_event_loop(node: Node) -> None:
    for arguments in (
        ["status", str(node.mountpoint)],
        ["status", "--json", str(node.mountpoint)],
        ["ls", str(node.mountpoint)],
    ):
        code = f"import sys; from cachexfs.cli import main; main({arguments!r}); "
        code += "print(sorted({'trio', 'pyfuse3', 'sqlite3', 'numpy'} & set(sys.modules)))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.stdout.splitlines()[-1] == "[]", done.stdout + done.stderr


def test_a_daemon_that_died(node: Node) -> None:
    node.kill_daemon()
    for command in (["status"], ["ls"], ["umount"], ["wait", "--for", "durable"]):
        assert "not running" in fails(3, *command, node.mountpoint)


def test_wait_and_its_time_limit(pair: tuple[Node, Node]) -> None:
    a, _ = pair
    with held_open(a.mountpoint / "open", 1):
        said = fails(75, "wait", a.mountpoint / "open", "--for", "captured", "--timeout", "0.2")
        assert "open is open" in said
        said = fails(75, "umount", a.mountpoint, "--timeout", "0.2")
        assert "stays mounted" in said and "open is open" in said
    run("wait", a.mountpoint, "--for", "durable", "--timeout", "20s")
    run("wait", a.mountpoint / "open", "--for", "replicated")


def test_umount_waits_and_refuses_while_busy(pair: tuple[Node, Node]) -> None:
    a, _ = pair
    (a.mountpoint / "file").write_bytes(b"x" * 10_000_000)
    with (a.mountpoint / "file").open("rb"):
        said = fails(1, "umount", a.mountpoint)
        assert "busy" in said and os.path.ismount(a.mountpoint)
    state = a.state
    run("umount", a.mountpoint)
    assert not os.path.ismount(a.mountpoint) and not (state / "ram").exists()
    assert (a.source / "file").stat().st_size == 10_000_000
    eventually(lambda: not processes_about(a.mountpoint), "the end of the daemon", 5)
    fails(4, "umount", a.mountpoint)


def test_umount_for_none_keeps_what_is_not_safe(tmp_path: Path) -> None:
    with nodes(tmp_path, "ab", extra='[mount]\nfsync = "captured"\n') as (a, _):
        a.mount()
        for index in range(50):
            (a.mountpoint / f"f{index}").write_bytes(b"%d" % index * 100_000)
        a.umount("none")
        a.mount()
        a.umount()
        assert all((a.source / f"f{i}").read_bytes() == b"%d" % i * 100_000 for i in range(50))


def test_sigterm_unmounts_and_keeps_what_is_not_safe(pair: tuple[Node, Node]) -> None:
    a, _ = pair
    (a.mountpoint / "file").write_bytes(b"x" * 10_000_000)
    os.kill(a.pid(), 15)
    eventually(lambda: not os.path.ismount(a.mountpoint), "unmounting", 10)
    eventually(lambda: not processes_about(a.mountpoint), "the end of the daemon", 10)
    a.mount()
    assert (a.mountpoint / "file").stat().st_size == 10_000_000
    a.umount()


def test_evict_pin_unpin(node: Node) -> None:
    path = node.mountpoint / "file"
    path.write_bytes(b"x" * 1_000_000)
    node.wait("durable")
    used = node.report()["ram"]["used_bytes"]
    run("pin", path)
    run("unpin", path)
    assert "freed" in run("evict", path).stdout
    assert node.report()["ram"]["used_bytes"] < used - 900_000
    assert path.read_bytes() == b"x" * 1_000_000
    (entry,) = node.ls()
    assert (entry["state"], entry["size_bytes"]) == ("durable", 1_000_000)
    with held_open(path, 10):
        assert "file is open" in fails(1, "evict", path)


def test_verify_finds_a_flipped_byte(pair: tuple[Node, Node]) -> None:
    a, b = pair
    path = a.mountpoint / "file"
    path.write_bytes(b"x" * 3_000_000)
    a.wait("durable")
    eventually(lambda: a.ls()[0]["replicas"] == ["b"])
    assert run("verify", path).stdout.count("good") == 3
    (found,) = json.loads(run("verify", path, "--json").stdout)
    assert found == {"path": "file", "copies": {"ram": "good", "source": "good", "peer b": "good"}}
    times = (a.source / "file").stat()
    flip(a.source / "file", 2_000_000)
    os.utime(a.source / "file", ns=(times.st_atime_ns, times.st_mtime_ns))
    done = run("verify", path, "--json", check=False)
    copies = json.loads(done.stdout)[0]["copies"]
    assert done.returncode == 1 and "1 of 1 files" in done.stderr
    assert copies["ram"] == copies["peer b"] == "good" and "damaged" in copies["source"]
    for data in b.store.rglob("*"):
        if data.is_file() and data.stat().st_size == 3_000_000:
            flip(data, 1_000_000)
    copies = json.loads(run("verify", path, "--json", check=False).stdout)[0]["copies"]
    assert copies["ram"] == "good" and copies["peer b"] != "good"


def flip(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(b"?")


def test_states_as_extended_attributes(pair: tuple[Node, Node]) -> None:
    a, _ = pair
    path = a.mountpoint / "directory" / "file"
    path.parent.mkdir()
    path.write_bytes(b"x" * 1000)
    a.wait("durable")
    eventually(lambda: os.getxattr(path, "user.cachexfs.replicas") == b"b")
    for where in (path, path.parent, a.mountpoint):
        assert os.getxattr(where, "user.cachexfs.state") == b"durable"
        assert os.getxattr(where, "user.cachexfs.flushed_bytes") == b"1000"
        assert os.listxattr(where) == []


# -- configuration, mount(8)


def test_config_show_can_be_read_back(place: Path) -> None:
    config = write_config(
        place, '[ram]\nlimit = "64MiB"', '[mount]\npfs_timeout = "1500ms"', PEERS,
        f'[security]\nsecret_file = "{place}/secret"',
    )  # fmt: skip
    assert "right" in run("config", "check", "-c", config).stdout
    shown = run("config", "show", "-c", config).stdout
    again = place / "again.toml"
    again.write_text(shown)
    assert run("config", "show", "-c", again).stdout == shown
    assert "limit = 67108864" in shown and "pfs_timeout = 1.5" in shown


def test_mount_8_mounts_with_options(tmp_path: Path) -> None:
    with nodes(tmp_path) as (a,):
        a.mountpoint.mkdir()
        helper = [sys.executable, "-c", "from cachexfs.cli.mount_helper import main; main()"]
        options = f"rw,noauto,_netdev,x-systemd.automount,nosuid,config={a.config}"
        begin = time.monotonic()
        done = subprocess.run(
            [*helper, str(a.source), str(a.mountpoint), "-n", "-v", "-o", options],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert time.monotonic() - begin < 20
        (mount,) = [m for m in mounted() if m.path == a.mountpoint]
        assert mount.fs_type == "fuse.cachexfs"
        (a.mountpoint / "file").write_text("x")
        a.umount()


def test_a_frozen_daemon_is_said_to_be_frozen_and_outlives_who_asked(node: Node) -> None:
    pid = node.pid()
    os.kill(pid, signal.SIGSTOP)
    try:
        for command in ("status", "ls", "umount"):
            assert "does not answer" in fails(3, command, node.mountpoint)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert eventually(node.report, "an answer")["pid"] == pid
