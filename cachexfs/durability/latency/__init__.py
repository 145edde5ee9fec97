"""How long a phase takes: measured, fitted, and kept as a curve that anybody can evaluate.

    Sample (sample.py) ---> fitting.py ---> PhaseFit (fit.py) ---> Curve (curve.py)
                              | uses                                  | read by
      work.py     which bytes count      the time of a phase is       composition.py, the daemon
      drift.py    which samples count    work / rate:
      fit.py      how slow it is today   work bytes x level x unit time
      spells.py   quick or slow: bursts
      families.py what is left to chance
      prior.py    before there is data

`families.py`, `regression.py`, `drift.py` and `fitting.py` need numpy and scipy and are imported by
whoever fits: a process of its own (`python -m cachexfs.fitting`), the forecast command, tests. All
else is plain Python, because the mount's event loop evaluates it.
"""
