"""The ranks of one host: PyTorch is imported once, then each is forked.

    python -m tools.experiments.recovering.launch ERRAND

On two cores 32 imports would take minutes. Nothing has started a thread before the fork. Ends with
1 as soon as one rank has failed; the others are killed then.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback

import msgspec

from tools.experiments.recovering.plan import Errand


def main(text: str) -> int:
    """Start the ranks, wait for them; returns the exit status."""
    from tools.experiments.recovering import rank  # which imports PyTorch

    errand = msgspec.json.decode(text, type=Errand)
    children = {_fork(rank.run, errand, errand.first + index) for index in range(errand.count)}
    while children:
        pid, status = os.wait()
        children.discard(pid)
        if status:
            _kill(children)
            return 1
    return 0


def _fork(run: object, errand: Errand, rank: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        assert callable(run)
        run(errand, rank)
        code = 0
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stderr.flush()
    os._exit(code)


def _kill(pids: set[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
