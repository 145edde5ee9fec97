"""A wall clock that is wrong: `CLOCK_AHEAD_S` seconds ahead of the machine's, or behind it.

Python imports this by itself where its directory is in PYTHONPATH, before anything of a program.
What the kernel stamps (the times of files) goes by the machine's clock all the same.
"""

import os
import time

_AHEAD_NS = int(float(os.environ.get("CLOCK_AHEAD_S", "0")) * 1e9)
_right_ns = time.time_ns

time.time_ns = lambda: _right_ns() + _AHEAD_NS
time.time = lambda: time.time_ns() / 1e9
