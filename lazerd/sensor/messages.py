"""Pure: what a sensor and lazerd say to each other.

    sensor                               lazerd
    Hello(version, node, nonce)      ->
                                     <-  Challenge(nonce, proof)
    Proof(proof)                     ->
                                     <-  Welcome | Rejected
    Report(seq, reading)             ->
                                     <-  Received(seq)       and so on

A sensor takes its next look only after `Received`. So lazerd knows of every report that it was
looked at after it had received the one before, without the clocks of two machines being compared.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from lazerd.sensor.reading import Reading

VERSION = 1
NONCE_BYTES = 32
PROOF_BYTES = 32
"""Of HMAC-SHA256."""

Node = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
"""A host name is no longer (RFC 1035 section 2.3.4)."""
Nonce = Annotated[bytes, msgspec.Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
Mac = Annotated[bytes, msgspec.Meta(min_length=PROOF_BYTES, max_length=PROOF_BYTES)]
Seq = Annotated[int, msgspec.Meta(ge=1, le=2**62)]


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """The sensor of `node` is here."""

    version: int
    node: Node
    nonce: Nonce


class Challenge(msgspec.Struct, frozen=True, tag="challenge"):
    """lazerd's nonce, and its proof that it has the secret."""

    nonce: Nonce
    proof: Mac


class Proof(msgspec.Struct, frozen=True, tag="proof"):
    """The sensor's proof."""

    proof: Mac


class Welcome(msgspec.Struct, frozen=True, tag="welcome"):
    """Reports may come."""


class Rejected(msgspec.Struct, frozen=True, tag="rejected"):
    """Why there is no more to be said on this connection."""

    detail: Annotated[str, msgspec.Meta(max_length=512)]


class Report(msgspec.Struct, frozen=True, tag="report"):
    """One look at the node; `seq` is 1 for the first of a connection, and grows by one."""

    seq: Seq
    reading: Reading


class Received(msgspec.Struct, frozen=True, tag="received"):
    """The report of that number is taken; the next look may begin."""

    seq: Seq


Message = Hello | Challenge | Proof | Welcome | Rejected | Report | Received
