"""Errors that a person reads. Each owns its sentence and its exit code."""

from __future__ import annotations


class CacheXError(Exception):
    """Base of every error that ends a command; `str()` is one clear sentence."""

    exit_code = 1


class UsageError(CacheXError):
    """The command line or the configuration asks for something that cannot be."""

    exit_code = 2


class ConfigError(UsageError):
    """A configuration file is wrong; the message names the file and the key."""


class NotRunning(CacheXError):
    """No daemon answers."""

    exit_code = 3


class NoSuchMount(CacheXError):
    """The path is not on a mount of CacheX-FS."""

    exit_code = 4


class TimedOut(CacheXError):
    """The time that was given ran out (EX_TEMPFAIL of sysexits.h)."""

    exit_code = 75
