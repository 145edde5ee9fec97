"""The engine: events in, actions out. No clock, no randomness, no I/O."""

from __future__ import annotations

from collections.abc import Iterable

from lazerd.model.actions import Action
from lazerd.model.cluster import Cluster
from lazerd.model.events import Event
from lazerd.policy.names import Policy


class Engine:
    """Decides who starts, who goes, and when to ask again."""

    def __init__(self, cluster: Cluster, policy: Policy) -> None:
        self.cluster = cluster
        self.policy = policy

    def handle(self, event: Event, now_s: float) -> tuple[Action, ...]:
        """One event at `now_s`, decided at once."""
        return self.handle_all((event,), now_s)

    def handle_all(self, events: Iterable[Event], now_s: float) -> tuple[Action, ...]:
        """All events of one instant, decided together."""
        raise NotImplementedError
