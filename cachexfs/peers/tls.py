"""Mutual TLS between peers: both sides show a certificate of the cluster's own authority.

Host names are not checked: addresses are often bare IP addresses, and a private authority signs
members only. Which member it is, the handshake inside says.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NamedTuple

from cachexfs.config import Security, must_be_private
from cachexfs.errors import ConfigError

_NOT_TLS = (
    "WRONG_VERSION_NUMBER",
    "HTTP_REQUEST",
    "PACKET_LENGTH_TOO_LONG",
    "RECORD_LAYER_FAILURE",
)
"""What OpenSSL makes of bytes that are no TLS."""


class Contexts(NamedTuple):
    """One for connecting, one for listening; None both: plain TCP."""

    client: ssl.SSLContext | None
    server: ssl.SSLContext | None


def contexts(security: Security) -> Contexts:
    """From the configuration's three files. Raises `ConfigError` when one cannot be used."""
    if not (security.tls_cert and security.tls_key and security.tls_ca):
        return Contexts(None, None)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for context in (client, server):
        _load(context, security.tls_cert, security.tls_key, security.tls_ca)
    return Contexts(client, server)


def _load(context: ssl.SSLContext, cert: str, key: str, ca: str) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_cert_chain(cert, key)
        context.load_verify_locations(ca)
        must_be_private(Path(key), "security.tls_key")
    except OSError as error:
        raise ConfigError(f"security: cannot use {cert}, {key}, {ca}: {error}") from None


def sentence(error: ssl.SSLError) -> str:
    """What a person can do something about. `str(error)` has file names of OpenSSL in it."""
    reason = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted here: {error.verify_message} (security.tls_ca)"
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "it shows no certificate (security.tls_cert there)"
    if reason in _NOT_TLS:
        return (
            "this side speaks TLS and the other does not (security.tls_cert, tls_key, tls_ca: "
            "the same on all nodes)"
        )
    return f"TLS: {reason.replace('_', ' ').lower() or 'the connection broke'}"
