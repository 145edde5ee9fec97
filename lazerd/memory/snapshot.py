"""An engine as bytes and back, for a daemon of the same version only.

Replaying every event since the first would take longer each day, so the engine is written down from
time to time and only what came later is replayed. The fingerprint covers the code that decides and
the policy by name: another version would read the bytes wrongly, or decide otherwise on replay, so
it starts from the records of the jobs instead (`lazerd/memory/rebuild.py`).

The bytes are a pickle, read from a file that only this daemon's user can write.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import lazerd
from lazerd.engine import Engine
from lazerd.policy.names import Policy

_POLICY = "policy"
_DECIDES = ("engine.py", "model", "policy", "predict")


class Unusable(ValueError):
    """The bytes are not an engine of this version."""


def fingerprint(policy: Policy, information: str) -> str:
    """What must be equal for a snapshot, or a replay, to be worth anything."""
    return f"{_code()} {policy.name} {information}"


@lru_cache
def _code() -> str:
    here = Path(lazerd.__file__).parent
    digest = hashlib.sha256(sys.version.encode())
    for name in _DECIDES:
        for path in sorted((here / name).rglob("*.py")) or [here / name]:
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def freeze(engine: Engine) -> bytes:
    """The engine as it is. Blocks, about 10 microseconds for each job."""
    buffer = io.BytesIO()
    _Pickler(buffer, engine.policy).dump(engine)
    return buffer.getvalue()


def thaw(frozen: bytes, policy: Policy) -> Engine:
    """The engine of `freeze`. Raises `Unusable`."""
    try:
        engine = _Unpickler(io.BytesIO(frozen), policy).load()
    except Exception as error:  # pickle raises whatever the bytes lead it to
        raise Unusable(repr(error)) from None
    if not isinstance(engine, Engine):
        raise Unusable("not an engine")
    return engine


class _Pickler(pickle.Pickler):
    """A policy is made of functions; by name it is made again."""

    def __init__(self, file: io.BytesIO, policy: Policy) -> None:
        super().__init__(file, protocol=5)
        self._policy = policy

    def persistent_id(self, thing: Any) -> str | None:
        return _POLICY if thing is self._policy else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, policy: Policy) -> None:
        super().__init__(file)
        self._policy = policy

    def persistent_load(self, name: str) -> Policy:
        return self._policy
