"""Starting the programs of `writers_under_fire`, and holding what they said against what is there.

Programs are processes of their own: one that waits for a mount for ever cannot hang the test.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster_of_nodes import Node

SCRIPT = Path(__file__).with_name("writers_under_fire.py")
END_S = 30.0


@dataclass
class Troop:
    """Programs that are under way in a mount."""

    node: Node
    programs: dict[str, subprocess.Popen[str]]

    @classmethod
    def of(cls, node: Node, kinds: Iterable[str], seconds: float, seed: int) -> Troop:
        """Start one program for each kind; "small 2" is a second one of that kind."""
        programs = {}
        for number, name in enumerate(kinds):
            directory = node.mountpoint / name.replace(" ", "-")
            directory.mkdir()
            kind = name.partition(" ")[0]
            command = [sys.executable, str(SCRIPT), kind, str(directory), str(seconds)]
            programs[name] = subprocess.Popen(
                [*command, str(seed + number)], stdout=subprocess.PIPE, text=True
            )
        return cls(node, programs)

    def is_busy(self) -> bool:
        """Whether any is still under way."""
        return any(program.poll() is None for program in self.programs.values())

    def said(self) -> dict[str, Any]:
        """Wait for all of them; what each said."""
        return {
            name: json.loads(program.communicate(timeout=END_S)[0])
            for name, program in self.programs.items()
        }

    def close(self) -> None:
        """End those that are left."""
        for program in self.programs.values():
            program.kill()
            program.wait()

    def check(self, at: Path, said: dict[str, Any]) -> None:
        """No program saw an error, and every byte is right below `at`."""
        errors = {name: one["error"] for name, one in said.items() if one["error"]}
        assert not errors, errors
        for name, one in said.items():
            directory = at / name.replace(" ", "-")
            for file, digest in one["kept"].items():
                found = hashlib.sha256((directory / file).read_bytes()).hexdigest()
                assert found == digest, f"{directory / file} is not what was written"


def longest(said: dict[str, Any]) -> tuple[float, str]:
    """The longest operation of all, in seconds, and whose it was."""
    return max((one["longest_s"], f"{name}: {one['slowest']}") for name, one in said.items())
