"""The text of squeue and sinfo, with separators of our own instead of columns. Pure.

For a glance at states, where the JSON of 10,000 jobs would cost too much. No field that a user
chooses freely is asked for, so nothing in a field can look like a separator.
"""

from __future__ import annotations

from lazerd.backend.slurm.errors import BrokenAnswer
from lazerd.backend.slurm.gres import gpus_of
from lazerd.backend.slurm.hosts import hosts_of
from lazerd.backend.slurm.records import STATE_FLAGS, SlurmJob, SlurmNode
from lazerd.backend.slurm.tasks import throttle_of
from lazerd.backend.slurm.values import count_of, text_of, words_of

SEPARATOR = "|"

SQUEUE = {
    "%A": "number",
    "%F": "array",
    "%K": "tasks",
    "%T": "state",
    "%r": "reason",
    "%Q": "priority",
    "%P": "partition",
    "%u": "user",
    "%D": "node_count",
    "%b": "tres_per_node",
    "%N": "nodes",
}
"""squeue's letter -> our name."""

SINFO = {"%N": "name", "%T": "state", "%G": "gres", "%R": "partition"}

SQUEUE_COMMAND = ("squeue", "--noheader", "--states=all", "--format=" + SEPARATOR.join(SQUEUE))
SINFO_COMMAND = ("sinfo", "--noheader", "--Node", "--format=" + SEPARATOR.join(SINFO))


def jobs_of(answer: str) -> tuple[list[SlurmJob], list[str]]:
    """The jobs of SQUEUE_COMMAND, and a sentence for each line that was left out."""
    found: list[SlurmJob] = []
    broken: list[str] = []
    for line in answer.splitlines():
        try:
            found.append(_job_of(_fields(line, SQUEUE)))
        except (BrokenAnswer, ValueError) as error:
            broken.append(f"the line {line[:60]!r} of squeue is left out: {error}")
    return found, broken


def nodes_of(answer: str) -> tuple[list[SlurmNode], list[str]]:
    """The nodes of SINFO_COMMAND: a line for each partition that a node is in."""
    found: dict[str, SlurmNode] = {}
    broken: list[str] = []
    for line in answer.splitlines():
        try:
            fields = _fields(line, SINFO)
        except BrokenAnswer as error:
            broken.append(f"the line {line[:60]!r} of sinfo is left out: {error}")
            continue
        before = found.get(fields["name"])
        partitions = (before.partitions if before else ()) + (fields["partition"],)
        found[fields["name"]] = SlurmNode(
            fields["name"], gpus_of(fields["gres"]), _node_states(fields["state"]), partitions
        )
    return list(found.values()), broken


def _node_states(text: str) -> tuple[str, ...]:
    """`drained*`: sinfo joins a state and its flags to one word."""
    word = text.upper()
    bare = word.rstrip("*~#!%$@^-+")
    return (bare, "NOT_RESPONDING") if "*" in word else (bare,)


def _fields(line: str, names: dict[str, str]) -> dict[str, str]:
    values = line.split(SEPARATOR)
    if len(values) != len(names):
        raise BrokenAnswer(f"{len(names)} fields were asked for, {len(values)} came")
    return dict(zip(names.values(), values, strict=True))


def _job_of(fields: dict[str, str]) -> SlurmJob:
    words = words_of(fields["state"])
    tasks = text_of(fields["tasks"])
    per_node = gpus_of(fields["tres_per_node"])
    node_count = max(count_of(fields["node_count"], 1), 1)
    return SlurmJob(
        number=count_of(fields["number"]),
        state=next((w for w in words if w not in STATE_FLAGS), "PENDING"),
        flags=frozenset(w for w in words if w in STATE_FLAGS),
        reason=text_of(fields["reason"]),
        array_id=count_of(fields["array"]) if tasks else 0,
        task=int(tasks) if tasks.isdigit() else None,
        tasks="" if tasks.isdigit() else tasks,
        throttle=throttle_of(tasks),
        user=fields["user"],
        partitions=tuple(fields["partition"].split(",")),
        priority=count_of(fields["priority"]),
        gpus=per_node * node_count,
        gpus_per_node=per_node,
        node_count=node_count,
        nodes=hosts_of(fields["nodes"]),
    )
