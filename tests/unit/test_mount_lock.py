"""One daemon for a mount point; one that is just ending is waited for."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from cachexfs import mountstate
from cachexfs.errors import CacheXError


def test_a_daemon_that_is_ending_is_waited_for(tmp_path: Path) -> None:
    held = mountstate.lock(tmp_path)
    ending = threading.Timer(0.1, os.close, [held])
    ending.start()
    os.close(mountstate.lock(tmp_path))
    ending.join()


def test_one_that_goes_on_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mountstate, "ENDS_WITHIN_S", 0.1)
    held = mountstate.lock(tmp_path)
    with pytest.raises(CacheXError, match="another daemon serves this mount point"):
        mountstate.lock(tmp_path)
    os.close(held)
