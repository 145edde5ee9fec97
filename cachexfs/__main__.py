"""`python -m cachexfs`."""

from cachexfs.cli import main

main()
