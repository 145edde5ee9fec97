"""Benchmarks of the mount beside the plain thing. `tools/bench --help`."""
