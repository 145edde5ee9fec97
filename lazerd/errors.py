"""Errors that a person reads. Each owns its sentence and its exit code.

The command's exit codes: 0 done, 1 failed, 2 usage, 3 no daemon answers, 75 the time ran out.
"""

from __future__ import annotations


class LazerError(Exception):
    """Base of every error that ends a command; `str()` is one clear sentence."""

    exit_code = 1


class UsageError(LazerError):
    """The command line or the configuration asks for something that cannot be."""

    exit_code = 2


class ConfigError(UsageError):
    """A configuration file is wrong; the message names the file and the key."""


class NotRunning(LazerError):
    """No daemon answers."""

    exit_code = 3


class NoSuchJob(LazerError):
    """There is no such job, or none that who asks may see."""


class NotAllowed(LazerError):
    """It belongs to somebody else."""


class WrongPhase(LazerError):
    """That cannot be done to a job where it is in its life."""


class StoreFull(LazerError):
    """No room for the store; nothing that was stored is lost."""


class StoreDamaged(LazerError):
    """The store cannot be read; it stays where it is."""


class TimedOut(LazerError):
    """The time that was given ran out (EX_TEMPFAIL of sysexits.h)."""

    exit_code = 75


BY_NAME: dict[str, type[LazerError]] = {
    kind.__name__: kind
    for kind in (UsageError, NoSuchJob, NotAllowed, WrongPhase, StoreFull, StoreDamaged, TimedOut)
}
"""What travels over the control socket as itself; everything else is a `LazerError`."""
