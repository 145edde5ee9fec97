"""A policy from its name: `ORDER`, `ORDER/VARIANT`, or `lazer`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from lazerd.policy.attained import Las
from lazerd.policy.classes import Classes
from lazerd.policy.deferral import GUESSED, TOLD, Prices
from lazerd.policy.gittins import Gittins
from lazerd.policy.orders import Fifo, Order, Sjf, Srsf, Srtf
from lazerd.policy.variants import EAGER, LAZER, NOSETUP, STAYING, Variant, exempt
from lazerd.predict.remaining import Everybody, Given, History, Remaining


class Information(Enum):
    """Where the durations of jobs come from."""

    GIVEN = "given"
    """`JobSpec.estimate_s`, however good it is."""
    HISTORY = "history"
    """Finished jobs of the same user, name and size."""
    NONE = "none"
    """Nowhere: only what a job has attained, and how long jobs take in general."""


@dataclass(frozen=True, slots=True)
class Policy:
    """An order, a variant, the source of durations, and what a preemption costs by them.

    `order` and `source` make new ones for an engine.
    """

    name: str
    order: Callable[[], Order]
    variant: Variant
    source: Callable[[], Remaining]
    prices: Prices


ORDERS: dict[str, Callable[[Variant], Order]] = {
    "fifo": lambda variant: Fifo(),
    "sjf": lambda variant: Sjf(),
    "srtf": lambda variant: Srtf(restart_counts=variant.defers),
    "srsf": lambda variant: Srsf(restart_counts=variant.defers),
    "las": lambda variant: Las(),
    "gittins": lambda variant: Gittins(restart_counts=variant.defers),
}
"""`priority:ORDER` is that order within each priority class."""

VARIANTS = {variant.name: variant for variant in (STAYING, EAGER, NOSETUP, LAZER)}

SOURCES: dict[Information, Callable[[], Remaining]] = {
    Information.GIVEN: Given,
    Information.HISTORY: History,
    Information.NONE: Everybody,
}

PRICES = {
    Information.GIVEN: TOLD,
    Information.HISTORY: GUESSED,
    Information.NONE: GUESSED,
}

BEST = {
    Information.GIVEN: "srsf",
    Information.HISTORY: "gittins",
    Information.NONE: "gittins",
}
"""The order that `lazer` alone stands for; docs/lazer.md has the figures."""

CLASSES = "priority:"


def policy_named(name: str, information: Information = Information.GIVEN) -> Policy:
    """The policy of that name; ValueError, with the names that there are, for any other."""
    order, _, variant = name.partition("/")
    if name == LAZER.name:
        order, variant = BEST[information], LAZER.name
    rule = _variant(variant)
    return Policy(name, _order(order, rule), rule, SOURCES[information], PRICES[information])


def _variant(name: str) -> Variant:
    if name in VARIANTS:
        return VARIANTS[name]
    kind, _, seconds = name.partition(":")
    if kind != "exempt":
        raise ValueError(f"no variant {name!r}: there are eager, exempt:SECONDS, nosetup, lazer")
    return exempt(float(seconds))


def _order(name: str, variant: Variant) -> Callable[[], Order]:
    inner = ORDERS.get(name.removeprefix(CLASSES))
    if inner is None:
        raise ValueError(f"no order {name!r}: there are {', '.join(ORDERS)}, priority:ORDER")
    if name.startswith(CLASSES):
        return lambda: Classes(inner(variant))
    return lambda: inner(variant)
