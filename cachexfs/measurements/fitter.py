"""The process that fits: `python -m cachexfs.measurements.fitter FILE`. numpy and scipy."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path

NICENESS = 19
_PR_SET_PDEATHSIG = 1
"""linux/prctl.h: a signal for this process when its parent dies."""


def main(path: Path) -> int:
    """Fit what is in a store and put the fits beside it. Returns the exit code."""
    _step_back()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        from cachexfs.durability.latency.fitting import fit_all
    except ModuleNotFoundError as error:
        sys.stderr.write(f"{error.name} is not installed\n")
        return 1
    from cachexfs.measurements.record import samples
    from cachexfs.measurements.store import Store

    store = Store(path)
    try:
        store.save_fits(fit_all(samples(store.records())))
    finally:
        store.close()
    return 0


def _step_back() -> None:
    """The last in line for the processor, the first for the out-of-memory killer, and no orphan.

    The daemon that starts it is protected (`daemon._protect`), which a child would inherit.
    """
    os.nice(NICENESS)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
