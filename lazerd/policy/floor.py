"""The floor: jobs in line, running, leaving, and the GPUs under them; the moves between.

Each move changes a job's phase and every index that the job is in, together, so that none can be
forgotten. Who moves, and when, is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable

from lazerd.model.cluster import Cluster, Placement
from lazerd.model.job import Job, JobSpec, Phase
from lazerd.policy.alarms import Alarm, Alarms
from lazerd.policy.line import Line
from lazerd.policy.names import Policy
from lazerd.policy.orders import NEVER, work_left_s
from lazerd.policy.patience import Elders, patience_s
from lazerd.policy.promises import Promises
from lazerd.policy.running import Running
from lazerd.predict.accuracy import Accuracy
from lazerd.predict.arrivals import Arrivals
from lazerd.predict.loss import saved_s, worked_s
from lazerd.predict.setup import Setups

LATE_S = 1.0
"""An expected end is overrun when it is so long past: traces and `sacct` tell whole seconds."""


class Floor:
    """All that the engine knows, and the moves that keep it consistent."""

    def __init__(self, cluster: Cluster, policy: Policy) -> None:
        self.cluster = cluster
        self.variant = policy.variant
        self.prices = policy.prices
        self.order = policy.order()
        self.remaining = policy.source()
        self.setups = Setups()
        self.arrivals = Arrivals()
        self.accuracy = {"work": Accuracy(), "setup": Accuracy()}
        self.jobs: dict[str, Job] = {}
        self.line = Line()
        self.due = Line()
        """Those of the line that have waited as long as a preemption for them would cost."""
        self.running = Running(self.order)
        self.leaving: dict[int, Job] = {}
        self.promises = Promises(cluster)
        self.elders = Elders()
        self.alarms = Alarms()
        self.least_setup_s = NEVER
        """The shortest set-up to expect of any job that ever worked."""
        self.submitted = 0

    def ring(self, now_s: float) -> None:
        """What has happened by the passing of time."""
        for alarm, job in self.alarms.ring(now_s):
            _ALARMS[alarm](self, job, now_s)

    def submit(self, spec: JobSpec, now_s: float) -> Job:
        """A new job joins the line."""
        job = self.jobs[spec.job_id] = Job(spec, self.submitted)
        self.submitted += 1
        self.arrivals.observe(now_s)
        job.estimate_s = job.first_estimate_s = self.remaining.total_s(spec, 0.0)
        self.queue(job, now_s)
        return job

    def queue(self, job: Job, now_s: float) -> None:
        """The job joins the line, at the place that its order gives it now."""
        self.enter(job, Phase.PENDING)
        job.since_s = now_s
        job.look_s = NEVER
        job.is_put_off = False
        job.setup_s = max(self.setups.expected_s(job.spec), job.outlived_setup_s)
        key = self.order.key(job)
        job.key = -NEVER if job.is_elder else key
        self.line.add(job)
        if self.variant.defers and not job.is_elder:
            self.alarms.set(now_s + self.prices.limit_s(job), Alarm.DUE, job)
        if not job.is_elder:
            self.alarms.set(now_s + patience_s(job), Alarm.ELDER, job)
            self.alarms.set(self.order.promoted_at(job), Alarm.PROMOTED, job)

    def unqueue(self, job: Job, to: Phase) -> None:
        """A pending or promised job leaves the line, or gives up its promise."""
        if job.phase is Phase.PROMISED:
            self.promises.withdraw(job)
        elif job.phase is Phase.PENDING:
            self.line.remove(job)
            if job.is_due:
                job.is_due = False
                self.due.remove(job)
        self.enter(job, to)

    def fall_due(self, job: Job, now_s: float) -> None:
        """A pending job need not wait any longer."""
        job.is_due = True
        self.due.add(job)

    def fall_elder(self, job: Job, now_s: float) -> None:
        """A pending job has waited too long: it goes to the front, when there is room there."""
        self.elders.has_waited(job)
        self._let_elders_in(now_s)

    def _let_elders_in(self, now_s: float) -> None:
        while (job := self.elders.admit(sum(self.cluster.size), now_s)) is not None:
            self._to_the_front(job, now_s)

    def _to_the_front(self, job: Job, now_s: float) -> None:
        since_s = job.since_s
        self.unqueue(job, Phase.PENDING)
        job.is_elder = True
        self.queue(job, now_s)
        job.since_s = since_s
        if self.variant.defers:
            self.fall_due(job, now_s)

    def look_again(self, job: Job, at_s: float, now_s: float) -> None:
        """A pending job was put off to `at_s`."""
        if at_s < job.look_s or job.look_s <= now_s:
            job.look_s = at_s
            self.alarms.set(at_s, Alarm.LOOK, job)

    def start(self, job: Job, placement: Placement, now_s: float) -> None:
        """A pending or promised job takes its GPUs; its set-up begins."""
        self.unqueue(job, Phase.SETUP)
        self.cluster.take(placement)
        job.placement = placement
        job.placed_s = now_s
        job.end_s = now_s + job.setup_s + work_left_s(job)
        self.running.add(job)
        if self.variant.preempts and self.variant.exempt_s == 0:
            self.expose(job, now_s)
        self._watch(job)

    def begin(self, job: Job, now_s: float) -> None:
        """Its set-up has ended: it works."""
        seconds = now_s - job.placed_s
        self.accuracy["setup"].observe(job.setup_s, seconds)
        self.setups.learn(job.spec, seconds)
        job.setup_s = max(self.setups.expected_s(job.spec), job.outlived_setup_s)
        self.least_setup_s = min(self.least_setup_s, job.setup_s)
        job.working_s = now_s
        self.enter(job, Phase.WORKING)
        self.expect_end(job, now_s + work_left_s(job))
        if self.variant.once_it_works:
            self.expose(job, now_s)
        self._watch(job)

    def expect_end(self, job: Job, end_s: float) -> None:
        """More is known about when a running job ends."""
        self.running.ends_at(job, end_s)
        self.alarms.set(end_s + LATE_S, Alarm.OVERRUN, job)

    def overrun(self, job: Job, now_s: float) -> None:
        """A running job should have ended by now: a new estimate, from what is known.

        What a job has outlived is remembered when it is preempted and loses work. Else its key
        would be smaller than the value that it was preempted for, and two jobs whose estimates are
        wrong would preempt each other for ever.
        """
        if job.phase is Phase.SETUP:
            elapsed_s = now_s - job.placed_s
            job.setup_s = job.outlived_setup_s = 2 * elapsed_s
            self.expect_end(job, now_s + elapsed_s + work_left_s(job))
            return
        age_s = job.reached_s = job.done_s + worked_s(job, now_s)
        job.estimate_s = self.remaining.total_s(job.spec, age_s)
        self.expect_end(job, now_s + job.estimate_s - age_s)

    def expose(self, job: Job, now_s: float) -> None:
        """From now on a running job may be preempted, unless it has waited too long before."""
        if not job.is_elder:
            self.running.expose(job)

    def look(self, job: Job, now_s: float) -> None:
        """A moment that a decision was put off to: the cycle that follows is all that it takes."""

    def let_go(self, job: Job, now_s: float) -> None:
        """A running job is told to go; it holds its GPUs until it is gone."""
        self.running.remove(job)
        self.cluster.let_go(job.placement)
        job.safe_s = saved_s(job, now_s)
        worked = worked_s(job, now_s)
        job.worked_s += worked
        job.attained_gpu_s += worked * job.spec.gpus
        job.reached_s = max(job.reached_s, job.done_s + worked)
        self.enter(job, Phase.LEAVING)
        self.leaving[job.seq] = job

    def gone(self, job: Job, saved_s: float, now_s: float) -> None:
        """A job that was told to go is gone; it is pending again, unless it was cancelled."""
        self._leave(job)
        job.done_s = job.safe_s = saved_s
        job.estimate_s = self.remaining.total_s(job.spec, max(saved_s, job.reached_s))
        job.preemptions += 1
        if job.cancelled:
            self.end(job)
        else:
            self.queue(job, now_s)

    def stuck(self, job: Job, now_s: float) -> None:
        """A job that was told to go does not: its GPUs are lost, and who waited waits again."""
        self.cluster.stuck(job.placement)
        job.placement = ()  # when it is gone after all, its node says that they are back
        for waiting in self.promises.waiting_for(job):
            self.unqueue(waiting, Phase.PENDING)
            self.queue(waiting, now_s)

    def finish(self, job: Job, now_s: float) -> None:
        """A job ended by itself."""
        total_s = job.done_s + worked_s(job, now_s)
        if job.phase is Phase.LEAVING:
            self._leave(job)
        else:
            self.running.remove(job)
            self.cluster.give(job.placement)
        self.remaining.learn(job.spec, total_s)
        self.order.learn(job, total_s)
        self.accuracy["work"].observe(job.first_estimate_s, total_s)
        self.end(job)
        if job.is_elder:
            self._let_elders_in(now_s)

    def end(self, job: Job) -> None:
        """The job is over."""
        self.enter(job, Phase.ENDED)

    def promise(self, job: Job, placement: Placement) -> None:
        """GPUs are kept for a pending job until those that leave are gone."""
        self.unqueue(job, Phase.PROMISED)
        holding = [victim for victim in self.leaving.values() if victim.placement]
        self.promises.make(job, placement, holding)  # who is stuck is waited for by nobody

    def drain(self, node: int, now_s: float) -> None:
        """The node takes no new job, not one that it was promised to either."""
        self.cluster.drain(node)
        for job in self.promises.on_node(node):
            self.unqueue(job, Phase.PENDING)
            self.queue(job, now_s)

    def advance(self, job: Job, now_s: float) -> None:
        """A running job's rank has changed by the passing of time."""
        exposed = job.exposed
        self.running.spare(job)
        self.order.advance(job)
        if exposed:
            self.running.expose(job)
        self.alarms.set(self.order.changes_at(job), Alarm.RANK, job)

    def promote(self, job: Job, now_s: float) -> None:
        """A pending job's key has changed by the passing of time."""
        self.unqueue(job, Phase.PENDING)
        self.order.promote(job)
        self.queue(job, now_s)

    def enter(self, job: Job, phase: Phase) -> None:
        """The job is in another phase; alarms set before do not concern it any more."""
        job.phase = phase
        job.stamp += 1

    def _leave(self, job: Job) -> None:
        del self.leaving[job.seq]
        self.cluster.gone(job.placement)
        self.promises.left(job)

    def _watch(self, job: Job) -> None:
        """Alarms of a job that is newly in set-up or at work."""
        if job.phase is Phase.SETUP:
            self.alarms.set(job.end_s + LATE_S, Alarm.OVERRUN, job)
        if self.variant.preempts and not job.exposed and not self.variant.once_it_works:
            self.alarms.set(job.placed_s + self.variant.exempt_s, Alarm.EXPOSED, job)
        self.alarms.set(self.order.changes_at(job), Alarm.RANK, job)


_ALARMS: dict[Alarm, Callable[[Floor, Job, float], None]] = {
    Alarm.OVERRUN: Floor.overrun,
    Alarm.EXPOSED: Floor.expose,
    Alarm.RANK: Floor.advance,
    Alarm.DUE: Floor.fall_due,
    Alarm.PROMOTED: Floor.promote,
    Alarm.LOOK: Floor.look,
    Alarm.ELDER: Floor.fall_elder,
}
