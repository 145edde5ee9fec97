"""Replays traces of GPU clusters through Lazer's decision engine: `python -m tools.replay`."""
