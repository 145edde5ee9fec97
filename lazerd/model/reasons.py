"""Why a job is pending: one CamelCase token for each, as Slurm prints them."""

from __future__ import annotations

from enum import Enum


class Reason(Enum):
    """In tiers: what nobody but a person can change comes first."""

    TOO_BIG = "TooBig"
    """No node, or not the whole cluster, has that many GPUs."""
    HELD = "Held"
    AWAITING_VICTIMS = "AwaitingVictims"
    """Its victims are on their way out."""
    DEFERRED_UNTIL_CHECKPOINT = "DeferredUntilCheckpoint"
    DEFERRED_UNTIL_COMPLETION = "DeferredUntilCompletion"
    DEFERRED_UNTIL_SETUP_END = "DeferredUntilSetupEnd"
    DEFERRED_BURST = "DeferredBurst"
    RESERVED = "Reserved"
    """GPUs are being kept for it as they come free."""
    RESOURCES = "Resources"
    """First in line; too few GPUs are free, and nobody's place is behind its own."""
    PRIORITY = "Priority"
    """Others are before it in line."""
