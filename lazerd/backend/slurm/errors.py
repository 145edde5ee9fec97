"""What can go wrong with Slurm, each with its sentence.

`Unreachable` is never a failure of a job (CASES 35): nothing is known until Slurm answers again.
"""

from __future__ import annotations


class SlurmError(Exception):
    """Base of what this backend raises; `str()` is one clear sentence."""


class Unreachable(SlurmError):
    """slurmctld is down, slow or being restarted: ask again later."""


class Refused(SlurmError):
    """Slurm said no: asking again the same way will not help."""


class NoSuchJob(Refused):
    """Slurm does not know the job, or no longer."""


class AlreadySo(Refused):
    """What was asked for is the case, or came too late: look again."""


class NotPermitted(Refused):
    """This user may not do that: lazerd has to be SlurmUser, root or an operator."""


class BrokenAnswer(SlurmError):
    """What a command of Slurm printed cannot be understood."""
