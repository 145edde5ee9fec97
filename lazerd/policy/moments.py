"""The delay predictor's comparison: what preempting now costs, and what each later moment does.

Costs are in seconds of completion time, all in all, and in GPU-seconds spent twice. A later moment
costs the waiting job the wait, and the victims what is still to pay then: nothing when GPUs come
free by themselves; a restart without lost work just after a checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence

from lazerd.model.job import Job, Phase
from lazerd.model.weighing import Candidate, Moment
from lazerd.policy.deferral import Prices
from lazerd.policy.floor import Floor
from lazerd.predict.loss import lost_s, next_checkpoint_in_s


def candidates(
    floor: Floor, job: Job, victims: Sequence[Job], relief_s: float, now_s: float
) -> list[Candidate]:
    """All moments at which the job could get its GPUs; `victims`: those it would take now."""
    found = [Candidate(Moment.COMPLETION, relief_s, relief_s, 0.0)]
    if victims:
        found.append(_now(floor.prices, job, victims, now_s))
        found.extend(_checkpoint(floor.prices, job, victims, now_s))
    else:
        found.extend(_setup_end(floor, job, now_s))
    return found


def _now(prices: Prices, job: Job, victims: Sequence[Job], now_s: float) -> Candidate:
    price = max(prices.price_s(job, victim, now_s) for victim in victims)
    lost = sum((v.setup_s + lost_s(v, now_s)) * v.spec.gpus for v in victims)
    return Candidate(Moment.NOW, 0.0, price, lost, _names(victims))


def _checkpoint(prices: Prices, job: Job, victims: Sequence[Job], now_s: float) -> list[Candidate]:
    at_risk = [victim for victim in victims if lost_s(victim, now_s) > 0]
    if not at_risk:
        return []
    wait_s = max(next_checkpoint_in_s(victim, now_s) for victim in at_risk)
    price = max(prices.price_s(job, victim, now_s) - lost_s(victim, now_s) for victim in victims)
    lost = sum(victim.setup_s * victim.spec.gpus for victim in victims)
    return [Candidate(Moment.CHECKPOINT, wait_s, wait_s + price, lost, _names(victims))]


def _setup_end(floor: Floor, job: Job, now_s: float) -> list[Candidate]:
    """The first end of a set-up after which there is a victim, or more of them."""
    for _, _, running in floor.running.ends:
        value = floor.order.value(running, now_s)
        if running.phase is Phase.SETUP and value > job.key:
            wait_s = max(0.0, running.placed_s + running.setup_s - now_s)
            cost_s = wait_s + floor.prices.price_s(job, running, now_s)
            lost = running.setup_s * running.spec.gpus
            return [Candidate(Moment.SETUP_END, wait_s, cost_s, lost, _names([running]))]
    return []


def _names(victims: Sequence[Job]) -> tuple[str, ...]:
    return tuple(victim.job_id for victim in victims)
