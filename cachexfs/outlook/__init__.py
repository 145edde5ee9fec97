"""The forecast of a mount, computed by whoever asks for it: numbers, a screen of text, a figure.

daemon ── Knowledge (model, files under way) ──┐
                                               ├─▶ summary.py ─▶ text.py, JSON, figure.py
store ── records (what phases took) ───────────┘
"""
