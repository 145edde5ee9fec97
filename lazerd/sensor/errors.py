"""Errors of the sensor. `str()` is one clear sentence; each owns its exit code."""

from __future__ import annotations

from lazerd.errors import LazerError


class SensorError(LazerError):
    """Base of what ends `lazer-sensor`, or keeps it from seeing or being heard."""


class NvmlUnavailable(SensorError):
    """No GPU can be asked: no driver, no library, no Python package."""


class SecretError(SensorError):
    """The file with the shared secret is missing, readable by others, or too short."""

    exit_code = 2


class AddressError(SensorError):
    """An address is not HOST:PORT."""

    exit_code = 2


class ProtocolError(SensorError):
    """The other side broke the protocol; the connection is of no more use."""


class HandshakeFailed(SensorError):
    """The other side does not have the same secret."""


class Refused(SensorError):
    """The other side said why it does not go on."""
