"""`python -m lazerd`: the daemon."""

from lazerd.cli.lazerd import main

if __name__ == "__main__":
    main()
