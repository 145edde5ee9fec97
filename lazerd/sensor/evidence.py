"""Pure: has a job begun to work? A ladder of evidence that is climbed sample by sample.

A job is in set-up until there is proof of work, however long that takes and however idle its GPUs
look: a download of an hour at 0 % is set-up. Nothing here calls a job idle, and nothing leads down
the ladder again; another placement has another ladder.

What is not proof:
- a context: frameworks take one before they load anything;
- one busy sample: a test kernel, an allocator that warms up;
- one busy GPU of a gang: a NCCL kernel spins at 100 % on the first rank while it waits for the
  others, which still load.

So the default asks for every GPU of the gang, each busy in several of its last samples. GPUs are
counted and not named, because a node's sensor learns which ones a job holds from its processes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from lazerd.backend.protocol import Evidence, Rung


@dataclass(frozen=True, slots=True)
class Use:
    """What a GPU on which a job holds a context did for it since the sample before.

    `busy_percent` is the share of time in which its kernels ran, None when that cannot be known;
    `why` says why then.
    """

    gpu: str
    busy_percent: int | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Sample:
    """One node's look at one job. `seq` grows; a sample that is not newer than the last is void."""

    node: str
    seq: int
    uses: tuple[Use, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """What counts as work.

    A GPU is busy when `busy_samples` of its last `window` samples were not zero: three of five,
    so that a pause between two steps does not start the count again. `fresh_s` is how old a node's
    last sample may be to count; whoever samples more rarely than that needs a larger one.
    """

    needed: Rung = Rung.BUSY
    busy_samples: int = 3
    window: int = 5
    fresh_s: float = 30.0


DEFAULT = Rule()

DETAILS: dict[Rung, str] = {
    Rung.NOTHING: "set-up: no process of it holds a GPU",
    Rung.CONTEXT: "set-up: holds {held} of {gang} GPUs, has run nothing on them",
    Rung.FIRST_KERNEL: "has run something; steadily busy are {busy} of {gang} GPUs",
    Rung.BUSY: "was steadily busy on all {gang} GPUs",
    Rung.SAID: "{said}",
}


class Ladder:
    """One placement of one job: `gpus_by_node` is its gang."""

    def __init__(self, gpus_by_node: Mapping[str, int], rule: Rule = DEFAULT) -> None:
        self.rule = rule
        self._nodes = {node: _NodeView(gpus, rule) for node, gpus in gpus_by_node.items()}
        self._rung = Rung.NOTHING
        self._said = ""

    @property
    def working(self) -> bool:
        """Whether its set-up is over. Once true, it stays so."""
        return self._rung >= self.rule.needed

    def observe(self, sample: Sample, now_s: float) -> Evidence:
        """Take a node's sample that arrived at `now_s`. Other nodes than the gang's are ignored."""
        view = self._nodes.get(sample.node)
        if view is not None:
            view.take(sample, now_s)
            self._rung = max(self._rung, self._reached(now_s))
        return self.evidence(now_s)

    def say(self, detail: str, now_s: float) -> Evidence:
        """The job says that it works: `lazer working`, or its first checkpoint."""
        self._rung, self._said = Rung.SAID, detail
        return self.evidence(now_s)

    def evidence(self, now_s: float) -> Evidence:
        """How far up it has come, in words too; incomplete while something cannot be seen."""
        blind = [] if self.working else self._blind(now_s)
        detail = "; ".join([DETAILS[self._rung].format(**self._numbers()), *blind])
        return Evidence(self._rung, detail, complete=not blind)

    def _reached(self, now_s: float) -> Rung:
        views = self._nodes.values()
        if all(view.is_fresh(now_s) and view.busy >= view.gpus for view in views):
            return Rung.BUSY
        if any(view.ever_busy for view in views):
            return Rung.FIRST_KERNEL
        return Rung.CONTEXT if any(view.held for view in views) else Rung.NOTHING

    def _numbers(self) -> dict[str, int | str]:
        views = self._nodes.values()
        return {
            "held": sum(view.held for view in views),
            "busy": sum(min(view.busy, view.gpus) for view in views),
            "gang": sum(view.gpus for view in views),
            "said": self._said,
        }

    def _blind(self, now_s: float) -> list[str]:
        silent = [node for node, view in self._nodes.items() if not view.is_fresh(now_s)]
        reasons = [f"no sample from {', '.join(silent)} lately"] if silent else []
        whys = [why for view in self._nodes.values() for why in view.blind.values()]
        if whys:
            more = f" (and {len(whys) - 1} more)" if len(whys) > 1 else ""
            reasons.append(f"{whys[0]}{more}: it has to say that it works (lazer working)")
        return reasons


class _NodeView:
    """The last samples of one node's part of the gang."""

    def __init__(self, gpus: int, rule: Rule) -> None:
        self.gpus = gpus
        self.held = 0
        self.ever_busy = False
        self.blind: dict[str, str] = {}
        self._rule = rule
        self._seq = -1
        self._seen_s = float("-inf")
        self._windows: dict[str, deque[bool]] = {}

    @property
    def busy(self) -> int:
        """GPUs that are steadily busy."""
        return sum(sum(w) >= self._rule.busy_samples for w in self._windows.values())

    def is_fresh(self, now_s: float) -> bool:
        return now_s - self._seen_s <= self._rule.fresh_s

    def take(self, sample: Sample, now_s: float) -> None:
        if sample.seq <= self._seq:
            return
        if not self.is_fresh(now_s):
            self._windows.clear()  # what was seen before the gap says nothing about after it
        self._seq, self._seen_s, self.held = sample.seq, now_s, len(sample.uses)
        self.blind = {use.gpu: use.why for use in sample.uses if use.busy_percent is None}
        busy = {use.gpu: bool(use.busy_percent) for use in sample.uses}
        for gpu in {**self._windows, **busy}:
            window = self._windows.setdefault(gpu, deque(maxlen=self._rule.window))
            window.append(busy.get(gpu, False))
        self.ever_busy = self.ever_busy or any(busy.values())
