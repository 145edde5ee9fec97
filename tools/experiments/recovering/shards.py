"""What the files of a checkpoint are: their content's digest, and their attributes.

    python -m tools.experiments.recovering.shards DIRECTORY

prints that for every file in the directory, as one JSON object: for a host to look at its mount.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

KEPT = ("mode", "uid", "gid", "mtime_ns")
"""The attributes that must come back."""


def describe(path: Path) -> dict[str, Any]:
    """`sha256` (hexadecimal), `size_bytes` and the attributes `KEPT`. Raises OSError."""
    with path.open("rb") as file:
        content, status = file.read(), os.fstat(file.fileno())
    return {
        "sha256": hashlib.sha256(content).hexdigest(),
        "size_bytes": status.st_size,
        "mode": status.st_mode & 0o7777,
        "uid": status.st_uid,
        "gid": status.st_gid,
        "mtime_ns": status.st_mtime_ns,
    }


def everything(directory: Path) -> dict[str, dict[str, Any]]:
    """All files of a directory by name. Raises OSError."""
    return {path.name: describe(path) for path in sorted(directory.iterdir())}


if __name__ == "__main__":
    print(json.dumps(everything(Path(sys.argv[1]))))
