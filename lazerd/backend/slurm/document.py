"""The JSON of squeue, sinfo and scontrol, of all releases since 22.05. Pure.

22.05 prints jobs with `squeue --json` and nodes with `sinfo --json`; since 23.02 scontrol's `show
job`, `show node` and `show partition` take `--json` too, and `sinfo --json` has become a summary.
The fields keep their names; how values look has changed (`values`). Unknown fields are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from lazerd.backend.slurm.errors import BrokenAnswer
from lazerd.backend.slurm.gres import gpus_of, gpus_of_tres, indexes_of
from lazerd.backend.slurm.hosts import hosts_of
from lazerd.backend.slurm.records import (
    STATE_FLAGS,
    Held,
    SlurmJob,
    SlurmNode,
    SlurmPartition,
)
from lazerd.backend.slurm.tasks import throttle_of
from lazerd.backend.slurm.values import count_of, is_yes, number_of, text_of, words_of

Record = TypeVar("Record")
Fields = Mapping[str, Any]


def jobs_of(answer: bytes) -> tuple[list[SlurmJob], list[str]]:
    """The jobs, and a sentence for each record that was left out."""
    return _each(answer, "jobs", "job", "job_id", job_of)


def nodes_of(answer: bytes) -> tuple[list[SlurmNode], list[str]]:
    """The nodes, from a list of them (22.05's sinfo, scontrol) or from sinfo's summary."""
    if "nodes" in _document(answer):
        return _each(answer, "nodes", "node", "name", node_of)
    groups, broken = _each(answer, "sinfo", "nodes", "node", _group_of)
    found: dict[str, SlurmNode] = {}
    for group in groups:
        for node in group:
            before = found.get(node.name)
            found[node.name] = node if before is None else _both(before, node)
    return list(found.values()), broken


def partitions_of(answer: bytes) -> tuple[list[SlurmPartition], list[str]]:
    """The partitions of `scontrol show partition --json`."""
    return _each(answer, "partitions", "partition", "name", partition_of)


def job_of(fields: Fields) -> SlurmJob:
    """One job."""
    words = words_of(fields.get("job_state"))
    nodes = hosts_of(_text(fields, "nodes"))
    node_count = max(count_of(fields.get("node_count"), 1), 1)
    task = number_of(fields.get("array_task_id"))
    tasks = _text(fields, "array_task_string")
    array_id = count_of(fields.get("array_job_id"))
    per_node, gpus = asked_gpus(
        node_count,
        count_of(fields.get("tasks"), 1),
        {name: _text(fields, name) for name in ASKED},
    )
    return SlurmJob(
        number=count_of(fields["job_id"]),
        state=next((w for w in words if w not in STATE_FLAGS), ""),
        flags=frozenset(w for w in words if w in STATE_FLAGS),
        reason=_text(fields, "state_reason"),
        array_id=array_id,
        # A record that stands for many tasks has a string; 22.05 says null, later ones "not set".
        task=int(task) if task is not None and array_id and not tasks else None,
        tasks=tasks,
        throttle=count_of(fields.get("array_max_tasks")) or throttle_of(tasks),
        het_id=count_of(fields.get("het_job_id")),
        name=_text(fields, "name"),
        user=_text(fields, "user_name") or str(count_of(fields.get("user_id"))),
        partitions=tuple(p for p in _text(fields, "partition").split(",") if p),
        priority=_priority(fields),
        gpus=gpus,
        gpus_per_node=per_node,
        node_count=node_count,
        nodes=nodes,
        held=held_gpus(nodes, fields.get("gres_detail") or [], _text(fields, "tres_alloc_str")),
        required_nodes=_text(fields, "required_nodes"),
        excluded_nodes=_text(fields, "excluded_nodes"),
        dependency=_text(fields, "dependency"),
        reservation=_text(fields, "resv_name"),
        submitted_s=number_of(fields.get("submit_time")) or 0.0,
        begins_s=number_of(fields.get("start_time")) or None,
        started_s=number_of(fields.get("start_time")) or None,
        limit_s=_minutes_s(fields.get("time_limit")),
        restarts=count_of(fields.get("restart_cnt")),
        can_requeue=is_yes(fields.get("requeue", True)),
        is_batch=is_yes(fields.get("batch_flag", True)),
        comment=_comment(fields, "comment", "job"),
        admin_comment=_comment(fields, "admin_comment", "administrator"),
        exit_status=_exit_status(fields.get("exit_code")),
    )


def node_of(fields: Fields) -> SlurmNode:
    """One node."""
    words = words_of(fields.get("state")) + words_of(fields.get("state_flags"))
    partitions = fields.get("partitions") or ()
    return SlurmNode(
        name=text_of(fields["name"]),
        gpus=gpus_of(_text(fields, "gres")),
        states=tuple(word.rstrip("*~#!%$@^-+") for word in words)
        + (("NOT_RESPONDING",) if any(word.endswith("*") for word in words) else ()),
        partitions=tuple(
            partitions if isinstance(partitions, list) else str(partitions).split(",")
        ),
        reason=_text(fields, "reason"),
    )


def partition_of(fields: Fields) -> SlurmPartition:
    """One partition."""
    nodes = fields.get("nodes") or {}
    state = fields.get("partition") or {}
    return SlurmPartition(
        name=text_of(fields["name"]),
        nodes=hosts_of(text_of(nodes.get("configured") or nodes.get("nodes") or "")),
        states=words_of(state.get("state") or fields.get("state")),
        preempt_mode="+".join(words_of(fields.get("preempt_mode"))),
        priority_tier=count_of((fields.get("priority") or {}).get("tier"), 1),
    )


ASKED = ("tres_per_node", "tres_per_job", "tres_per_task", "tres_per_socket", "tres_req_str")
"""Where a job says how many GPUs it wants; in this order."""


def asked_gpus(node_count: int, task_count: int, asked: Mapping[str, str]) -> tuple[int, int]:
    """GPUs per node and in all, from what was asked per node, job, task, or counted by Slurm."""
    if per_node := gpus_of(asked["tres_per_node"]):
        return per_node, per_node * node_count
    total = (
        gpus_of(asked["tres_per_job"])
        or gpus_of(asked["tres_per_task"]) * task_count
        or gpus_of_tres(asked["tres_req_str"])
        or 0
    )
    return -(-total // node_count), total


def held_gpus(nodes: tuple[str, ...], details: list[str], tres: str) -> tuple[Held, ...]:
    """What a placed job holds of each node: by Slurm's detail, else shared out evenly.

    The detail has one string for each node, in their order; "" for a node without.
    """
    if len(details) == len(nodes):
        pairs = zip(nodes, details, strict=True)
        return tuple(
            Held(node, gpus_of(text), indexes_of(text)) for node, text in pairs if gpus_of(text)
        )
    total = gpus_of_tres(tres) or 0
    share, rest = divmod(total, max(len(nodes), 1))
    return tuple(
        Held(node, share + (number < rest))
        for number, node in enumerate(nodes)
        if share + (number < rest)
    )


def _document(answer: bytes) -> Fields:
    try:
        document = msgspec.json.decode(answer)
    except msgspec.DecodeError as error:
        raise BrokenAnswer(f"Slurm's JSON cannot be read: {error}") from None
    if not isinstance(document, dict):
        raise BrokenAnswer("Slurm's JSON is no object")
    errors = document.get("errors") or []
    if errors and isinstance(errors, list) and isinstance(errors[0], dict):
        first = errors[0].get("description") or errors[0].get("error") or errors[0]
        raise BrokenAnswer(f"Slurm's JSON says: {first}")
    return document


def _each(
    answer: bytes, key: str, what: str, name: str, read: Callable[[Fields], Record]
) -> tuple[list[Record], list[str]]:
    listed = _document(answer).get(key)
    if not isinstance(listed, list):
        raise BrokenAnswer(f"Slurm's JSON has no list of {key}")
    found: list[Record] = []
    broken: list[str] = []
    for fields in listed:
        try:
            found.append(read(fields))
        except (BrokenAnswer, KeyError, TypeError, AttributeError, ValueError) as error:
            label = fields.get(name, "?") if isinstance(fields, dict) else "?"
            reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            broken.append(f"{what} {label} is left out: {reason}")
    return found, broken


def _group_of(fields: Fields) -> list[SlurmNode]:
    """The nodes of one line of sinfo's summary; GPUs and states are alike within it."""
    node, gres = fields["node"], fields.get("gres") or {}
    partition = text_of((fields.get("partition") or {}).get("name"))
    names = (fields.get("nodes") or {}).get("nodes") or []
    return [
        SlurmNode(
            name=str(name),
            gpus=gpus_of(text_of(gres.get("total"))),
            states=words_of(node.get("state")),
            partitions=(partition,),
            reason="; ".join(str(r) for r in (fields.get("reason") or {}).get("description") or []),
        )
        for name in names
    ]


def _both(one: SlurmNode, other: SlurmNode) -> SlurmNode:
    """The same node in two partitions."""
    return SlurmNode(one.name, one.gpus, one.states, one.partitions + other.partitions, one.reason)


def _text(fields: Fields, name: str) -> str:
    return text_of(fields.get(name))


def _comment(fields: Fields, name: str, within: str) -> str:
    """A comment: a field of its own, or one of an object with all comments."""
    value = fields.get(name)
    if value is None or isinstance(value, dict):
        comments = fields.get("comment")
        return text_of(comments.get(within)) if isinstance(comments, dict) else ""
    return text_of(value)


def _priority(fields: Fields) -> int | None:
    if fields.get("hold") is True:
        return 0
    number = number_of(fields.get("priority"))
    return None if number is None else int(number)


def _minutes_s(value: Any) -> float | None:
    minutes = number_of(value)
    return None if not minutes or minutes == float("inf") else minutes * 60.0


def _exit_status(value: Any) -> int:
    """A wait status, from a number (22.05, 23.02) or `{"return_code": ..., "signal": ...}`."""
    if not isinstance(value, dict) or "number" in value:
        return count_of(value)
    signal = value.get("signal") or {}
    number = count_of(signal.get("id", signal.get("signal_id")))
    return count_of(value.get("return_code")) * 256 + number
