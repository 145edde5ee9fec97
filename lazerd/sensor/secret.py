"""The secret that sensors and lazerd share: one file on every node, readable by its owner only."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from lazerd.sensor.errors import SecretError

MIN_SECRET_BYTES = 16
"""Shorter secrets can be guessed offline from one recorded handshake (RFC 2104 section 3)."""
HINT = "make one with: install -m 600 /dev/null FILE && head -c 32 /dev/urandom | base64 > FILE"


def read_secret(path: Path) -> bytes:
    """The secret, without white space around it. `SecretError` when it is missing, unreadable,
    open to others, or short."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            secret = file.read(4096).strip()
    except OSError as error:
        raise SecretError(f"cannot read the secret {path}: {error.strerror}; {HINT}") from None
    if mode & (stat.S_IRWXG | stat.S_IRWXO) and not _is_credential(path):
        raise SecretError(f"{path} is open to others (mode {mode & 0o777:o}): chmod 600 {path}")
    if len(secret) < MIN_SECRET_BYTES:
        raise SecretError(f"the secret {path} is shorter than {MIN_SECRET_BYTES} bytes; {HINT}")
    return secret


def _is_credential(path: Path) -> bool:
    """Handed over by systemd, which keeps it to the service by other means than its mode."""
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    return bool(folder) and path.parent == Path(str(folder))
