"""Who may be preempted, and whether a preemption may be put off."""

from __future__ import annotations

from dataclasses import dataclass

from lazerd.model.job import Job
from lazerd.policy.orders import NEVER


@dataclass(frozen=True, slots=True)
class Variant:
    """What a policy allows beside its order.

    A running job may be preempted `exempt_s` seconds after its placement; infinity: once it works.
    With `defers`, the delay predictor decides when.
    """

    name: str
    preempts: bool
    exempt_s: float = 0.0
    defers: bool = False

    @property
    def once_it_works(self) -> bool:
        """Whether the end of its set-up, and nothing else, makes a job a victim."""
        return self.exempt_s == NEVER

    def immune_s(self, job: Job) -> float:
        """For how long after its placement the job cannot be preempted, as far as is known."""
        if not self.preempts:
            return NEVER
        return job.setup_s if self.once_it_works else self.exempt_s


STAYING = Variant("", preempts=False)
"""Nobody is preempted."""
EAGER = Variant("eager", preempts=True)
NOSETUP = Variant("nosetup", preempts=True, exempt_s=NEVER)
LAZER = Variant("lazer", preempts=True, exempt_s=NEVER, defers=True)


def exempt(seconds: float) -> Variant:
    """Slurm's PreemptExemptTime: nobody goes before so many seconds have passed."""
    return Variant(f"exempt:{seconds:g}", preempts=True, exempt_s=seconds)
