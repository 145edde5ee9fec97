"""The delay predictor: preempt now, or at which later moment?

A preemption is worth it when waiting costs more. Waiting costs the waiting job the time until
running jobs, left alone, have freed enough by themselves (**relief**). Preempting has a **price**:
the victim stands aside for about half of what the waiting job needs (others end meanwhile and make
room for it), and its restart is paid twice, by itself and by those who wait for a GPU. A job that
has waited for as long as that need not wait any more (**limit**), so a wrong forecast of relief
costs no more than was to be saved.
"""

from __future__ import annotations

from dataclasses import dataclass

from lazerd.model.job import Job
from lazerd.policy.orders import NEVER, work_left_s
from lazerd.policy.running import Running
from lazerd.predict.loss import lost_s

STANDS_ASIDE = 0.5
"""Share of the waiting job's work by which its victim is delayed (`a` of DESIGN 2.7): half, because
others end meanwhile. Over the same cells 0.4 gave 1.0015 and 0.6 gave 0.9985, with a worst cell of
1.022 and 1.007."""


@dataclass(frozen=True, slots=True)
class Prices:
    """What preemptions cost, in seconds of completion time.

    `restart` is the weight of the restart's time (`b` of DESIGN 2.7).
    """

    restart: float

    def price_s(self, waiting: Job, victim: Job, now_s: float) -> float:
        """What a preemption now costs, in seconds of the victim's completion time."""
        return self._cost_s(waiting, victim.setup_s + lost_s(victim, now_s))

    def least_price_s(self, waiting: Job, least_setup_s: float) -> float:
        """What a preemption for this job costs at least, whoever the victim is."""
        return self._cost_s(waiting, least_setup_s)

    def limit_s(self, waiting: Job) -> float:
        """How long a job waits at most for relief: what its own preemption would cost."""
        return self._cost_s(waiting, waiting.setup_s)

    def _cost_s(self, waiting: Job, restart_s: float) -> float:
        return STANDS_ASIDE * work_left_s(waiting) + self.restart * restart_s


TOLD = Prices(restart=2.0)
"""Where durations are told. A restart delays the victim, and takes as much of a GPU from all who
wait, so it counts twice. Against eager SRSF, over nine cells, the mean completion time was 1.0016
with 1, 0.9996 with 2, 0.9974 with 2.5, 0.9987 with 3; the worst cell was 1.016, 1.007, 1.007 and
1.009. Preemptions fall from 15,145 to 14,222, barren ones from 1,808 to 1,669."""
GUESSED = Prices(restart=0.5)
"""Where they are not; chosen by measurement. Against eager 2D-Gittins, without estimates, over Muri
1 to 4, Philly's gangs and Philly on 384 GPUs with 300 s, the mean completion time was 0.993 with
0.5, 1.006 with 1 and 1.012 with 2; the worst cell was 1.022, 1.067 and 1.035."""


def pays_to_wait(safe_in_s: float, lost_s: float) -> bool:
    """Whether a victim is better preempted after its next checkpoint than now.

    Waiting costs the waiting job `safe_in_s`, going now costs the victim `lost_s`, so a victim in
    the second half of its interval is let on to its checkpoint.
    """
    return safe_in_s < lost_s


def relief_s(running: Running, gpus: int, now_s: float) -> float:
    """Time until running jobs, left alone, free so many GPUs; seconds."""
    if gpus <= 0:
        return 0.0
    for end_s, _, job in running.ends:
        gpus -= job.spec.gpus
        if gpus <= 0:
            return max(0.0, end_s - now_s)
    return NEVER
