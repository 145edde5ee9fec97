"""What is secret or decides is readable by its owner, and made by nobody else."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
import trustme

from cachexfs import mountstate
from cachexfs.cli.background import open_log
from cachexfs.config import Config, Security, read_secret
from cachexfs.errors import CacheXError, ConfigError
from cachexfs.peers import tls

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o440])
def test_a_secret_may_be_its_owners_and_its_groups(tmp_path: Path, mode: int) -> None:
    assert read_secret(secret_of(tmp_path, mode)) == b"0123456789abcdef"


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o660, 0o602, 0o666])
def test_a_secret_that_others_can_read_or_change_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(ConfigError) as caught:
        read_secret(secret_of(tmp_path, mode))
    said = f"security.secret_file: others can read or change {tmp_path}/secret: chmod 600 "
    assert str(caught.value) == f"{said}{tmp_path}/secret"


def secret_of(directory: Path, mode: int) -> Config:
    file = directory / "secret"
    file.write_text("0123456789abcdef\n")
    file.chmod(mode)
    return Config(security=Security(secret_file=str(file)))


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    authority = trustme.CA()
    cert = authority.issue_cert("n1")
    pem, key, ca = (tmp_path / name for name in ("pem", "key", "ca"))
    cert.cert_chain_pems[0].write_to_path(pem)
    cert.private_key_pem.write_to_path(key)
    authority.cert_pem.write_to_path(ca)
    security = Security(tls_cert=str(pem), tls_key=str(key), tls_ca=str(ca))
    key.chmod(0o644)
    with pytest.raises(ConfigError, match=r"tls_key: others can read or change .*: chmod 600 "):
        tls.contexts(security)
    key.chmod(0o600)
    assert tls.contexts(security).client is not None


def test_a_log_is_its_owners(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        open_log(tmp_path / "state" / "peer.log").close()
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "state/peer.log").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o755


def test_a_state_directory_that_was_open_is_closed(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    state.chmod(0o777)
    mountstate.prepare(state)
    assert stat.S_IMODE(state.stat().st_mode) == 0o711


@pytest.mark.root
@needs_root
def test_a_state_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    os.chown(state, 1234, -1)
    with pytest.raises(CacheXError, match="belongs to the user 1234"):
        mountstate.prepare(state)


def test_a_link_in_place_of_a_state_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "state").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CacheXError, match=r"node\.state_dir"):
        mountstate.prepare(tmp_path / "state")
