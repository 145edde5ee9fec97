"""What the phases of files took, and what had been forecast: kept across restarts, bounded.

tracker, ways ──▶ recorder (event loop, memory) ──▶ keeper (thread, each second) ──▶ store (SQLite)
                     ▲ model                            │ starts, now and then          │
                     └──────── fits ◀──────── fitter (a process of its own, numpy) ◀────┘
"""
