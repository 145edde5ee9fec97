"""The text of `scontrol --oneliner show`: `Key=value` pairs, one record a line. Pure.

The fallback where Slurm has no JSON plugin. Values may hold spaces and whatever a user has chosen
as a name or comment, so a value ends only where one of the known keys follows. A record in which
one of the keys that matter comes twice is left out: somebody's job name pretends to be one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from lazerd.backend.slurm.document import asked_gpus
from lazerd.backend.slurm.errors import BrokenAnswer
from lazerd.backend.slurm.gres import gpus_of, gpus_of_tres, indexes_of
from lazerd.backend.slurm.hosts import hosts_of
from lazerd.backend.slurm.keys import JOB_KEYS, NODE_KEYS, ONCE, PARTITION_KEYS
from lazerd.backend.slurm.records import (
    STATE_FLAGS,
    Held,
    SlurmJob,
    SlurmNode,
    SlurmPartition,
)
from lazerd.backend.slurm.tasks import throttle_of
from lazerd.backend.slurm.values import (
    count_of,
    duration_s,
    instant_s,
    is_yes,
    number_of,
    text_of,
    words_of,
)

Record = TypeVar("Record")
Fields = Mapping[str, str]


JOBS_NONE = "No jobs in the system"
NODES_NONE = "No nodes in the system"


_KEY = re.compile(r"(?:^|(?<=\s))([A-Za-z][\w/:]*)=")


def pairs_of(line: str, keys: frozenset[str]) -> list[tuple[str, str]]:
    """The pairs of one record, in their order."""
    found = [match for match in _KEY.finditer(line) if match[1] in keys]
    ends = [match.start() for match in found[1:]] + [len(line)]
    return [
        (match[1], line[match.end() : end].strip()) for match, end in zip(found, ends, strict=True)
    ]


def jobs_of(answer: str) -> tuple[list[SlurmJob], list[str]]:
    """The jobs of `scontrol -d -o show job`, and a sentence for each record that was left out."""
    return _each(answer, "JobId", JOB_KEYS, JOBS_NONE, _job_of)


def nodes_of(answer: str) -> tuple[list[SlurmNode], list[str]]:
    """The nodes of `scontrol -o show node`."""
    return _each(answer, "NodeName", NODE_KEYS, NODES_NONE, lambda pairs: node_of(_once(pairs)))


def partitions_of(answer: str) -> tuple[list[SlurmPartition], list[str]]:
    """The partitions of `scontrol -o show partition`."""
    return _each(
        answer,
        "PartitionName",
        PARTITION_KEYS,
        "No partitions in the system",
        lambda pairs: partition_of(_once(pairs)),
    )


def config_of(answer: str) -> dict[str, str]:
    """`scontrol show config`: `Key = value` lines, whatever the width; later sections have none."""
    found: dict[str, str] = {}
    for line in answer.splitlines():
        key, equals, value = line.partition("=")
        if equals and key.strip() and " " not in key.strip():
            found.setdefault(key.strip(), value.strip())
    if not found:
        raise BrokenAnswer("`scontrol show config` printed no settings")
    return found


def _each(
    answer: str,
    first: str,
    keys: frozenset[str],
    none: str,
    read: Callable[[list[tuple[str, str]]], Record],
) -> tuple[list[Record], list[str]]:
    found: list[Record] = []
    broken: list[str] = []
    for line in _lines(answer, first):
        if line.startswith(none):
            continue
        pairs = pairs_of(line, keys)
        try:
            found.append(read(pairs))
        except (BrokenAnswer, KeyError, ValueError) as error:
            label = f"{pairs[0][0]}={pairs[0][1]}" if pairs else repr(line[:40])
            reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            broken.append(f"{label} is left out: {reason}")
    return found, broken


def _lines(answer: str, first: str) -> list[str]:
    """The records: a line that does not begin with the first key goes on the one before."""
    lines: list[str] = []
    for line in answer.splitlines():
        if line.startswith((f"{first}=", "No ")) or not lines:
            lines.append(line)
        else:
            lines[-1] += " " + line
    return [line for line in lines if line.strip()]


def _once(pairs: list[tuple[str, str]]) -> dict[str, str]:
    """The fields; BrokenAnswer when one that decides something comes twice."""
    fields: dict[str, str] = {}
    for key, value in pairs:
        if key in fields and key in ONCE:
            raise BrokenAnswer(f"{key} comes twice")
        fields.setdefault(key, value)
    return fields


def _job_of(pairs: list[tuple[str, str]]) -> SlurmJob:
    return job_of(_once(pairs), _held(pairs))


def job_of(fields: Fields, held: tuple[Held, ...] = ()) -> SlurmJob:
    """One job; `held` from the lines that `-d` adds for each node."""
    words = words_of(fields["JobState"])
    text = fields.get("ArrayTaskId", "")
    node_count = max(count_of(fields.get("NumNodes"), 1), 1)
    asked = {
        "tres_per_node": fields.get("TresPerNode", ""),
        "tres_per_job": fields.get("TresPerJob", ""),
        "tres_per_task": fields.get("TresPerTask", ""),
        "tres_per_socket": fields.get("TresPerSocket", ""),
        "tres_req_str": fields.get("ReqTRES") or fields.get("TRES", ""),
    }
    per_node, gpus = asked_gpus(node_count, count_of(fields.get("NumTasks"), 1), asked)
    nodes = hosts_of(fields.get("NodeList", ""))
    return SlurmJob(
        number=count_of(fields["JobId"]),
        state=next((w for w in words if w not in STATE_FLAGS), ""),
        flags=frozenset(w for w in words if w in STATE_FLAGS),
        reason=_get(fields, "Reason"),
        array_id=count_of(fields.get("ArrayJobId")),
        task=int(text) if text.isdigit() else None,
        tasks="" if text.isdigit() else text_of(text),
        throttle=count_of(fields.get("ArrayTaskThrottle")) or throttle_of(text),
        het_id=count_of(fields.get("HetJobId")),
        name=_get(fields, "JobName"),
        user=_get(fields, "UserId").partition("(")[0],
        partitions=tuple(p for p in _get(fields, "Partition").split(",") if p),
        priority=int(number_of(fields.get("Priority")) or 0) if "Priority" in fields else None,
        gpus=gpus,
        gpus_per_node=per_node,
        node_count=node_count,
        nodes=nodes,
        held=held or _shared(nodes, fields),
        required_nodes=_get(fields, "ReqNodeList"),
        excluded_nodes=_get(fields, "ExcNodeList"),
        dependency=_get(fields, "Dependency"),
        reservation=_get(fields, "Reservation"),
        submitted_s=instant_s(fields.get("SubmitTime", "")) or 0.0,
        begins_s=instant_s(fields.get("StartTime", "")),
        started_s=instant_s(fields.get("StartTime", "")),
        limit_s=_limit_s(fields.get("TimeLimit", "")),
        restarts=count_of(fields.get("Restarts")),
        can_requeue=is_yes(fields.get("Requeue", "1")),
        is_batch=is_yes(fields.get("BatchFlag", "1")),
        comment=_get(fields, "Comment"),
        admin_comment=_get(fields, "AdminComment"),
        exit_status=_exit_status(fields.get("ExitCode", "0:0")),
    )


def node_of(fields: Fields) -> SlurmNode:
    """One node. Signs behind a state say more: `*` does not answer, `~` is asleep, ..."""
    words = words_of(fields["State"])
    return SlurmNode(
        name=fields["NodeName"],
        gpus=gpus_of(fields.get("Gres", "")),
        states=tuple(word.rstrip("*~#!%$@^-") for word in words)
        + (("NOT_RESPONDING",) if any("*" in word for word in words) else ()),
        partitions=tuple(p for p in _get(fields, "Partitions").split(",") if p),
        reason=_get(fields, "Reason").partition(" [")[0],
    )


def partition_of(fields: Fields) -> SlurmPartition:
    """One partition."""
    return SlurmPartition(
        name=fields["PartitionName"],
        nodes=hosts_of(fields.get("Nodes", "")),
        states=words_of(fields.get("State")),
        preempt_mode=fields.get("PreemptMode", "").replace(",", "+"),
        priority_tier=count_of(fields.get("PriorityTier"), 1),
    )


def _held(pairs: list[tuple[str, str]]) -> tuple[Held, ...]:
    """The GPUs of each node: `Nodes=n[1-2] CPU_IDs=0 Mem=0 GRES=gpu:2(IDX:0-1)`, once or more."""
    found: list[Held] = []
    hosts: tuple[str, ...] = ()
    for key, value in pairs:
        if key == "Nodes":
            hosts = hosts_of(value)
        elif key == "GRES" and gpus_of(value):
            found.extend(Held(host, gpus_of(value), indexes_of(value)) for host in hosts)
    return tuple(found)


def _shared(nodes: tuple[str, ...], fields: Fields) -> tuple[Held, ...]:
    total = gpus_of_tres(fields.get("AllocTRES") or fields.get("TRES", "")) or 0
    share, rest = divmod(total, max(len(nodes), 1))
    counts = [share + (number < rest) for number in range(len(nodes))]
    return tuple(Held(node, n) for node, n in zip(nodes, counts, strict=True) if n)


def _get(fields: Fields, key: str) -> str:
    return text_of(fields.get(key))


def _limit_s(text: str) -> float | None:
    seconds = duration_s(text) if text != "Partition_Limit" else None
    return None if seconds is None or seconds == float("inf") else seconds


def _exit_status(text: str) -> int:
    code, _, signal = text.partition(":")
    return count_of(code) * 256 + count_of(signal or "0")
