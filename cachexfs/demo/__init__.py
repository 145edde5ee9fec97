"""The demo: the whole story on one machine, with storage that fails on demand."""
