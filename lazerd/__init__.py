"""Lazer: preempts GPU jobs late, and only where it pays."""
