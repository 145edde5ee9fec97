"""Lazer: preempts GPU jobs late, and only where it pays."""

__version__ = "0.1.0"
