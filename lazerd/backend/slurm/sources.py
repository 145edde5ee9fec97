"""Two ways to look at Slurm: its JSON, or its text where there is none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

from lazerd.backend.slurm import document, scontrol
from lazerd.backend.slurm.commands import Commands
from lazerd.backend.slurm.controls import controls_of
from lazerd.backend.slurm.errors import Refused
from lazerd.backend.slurm.records import SlurmPartition, Snapshot
from lazerd.backend.slurm.threads import in_thread

SHOWS_JSON = (23, 2)
"""The release since which scontrol has --json; before, squeue and sinfo have it where the
serializer plugin is installed."""


class Source(Protocol):
    """A way to look."""

    @property
    def name(self) -> str:
        """`json` or `text`."""
        ...

    @property
    def config(self) -> Mapping[str, str]:
        """`scontrol show config`."""
        ...

    async def look(self) -> Snapshot:
        """All jobs and nodes, as of one moment each. SlurmError when there is no answer."""
        ...

    async def partitions(self) -> list[SlurmPartition]:
        """All partitions."""
        ...


class _Reading:
    """What both have in common: settings and partitions are text in every release."""

    def __init__(self, commands: Commands, config: Mapping[str, str]) -> None:
        self._commands = commands
        self.config = config

    async def partitions(self) -> list[SlurmPartition]:
        """All partitions."""
        answer = await self._commands.run(("scontrol", "--oneliner", "show", "partition"))
        return scontrol.partitions_of(answer.decode(errors="replace"))[0]


class JsonSource(_Reading):
    """`squeue --json`, and the nodes from scontrol or, in 22.05, from sinfo."""

    name = "json"

    async def look(self) -> Snapshot:
        """All jobs and nodes."""
        is_new = controls_of(self.config).release >= SHOWS_JSON
        nodes = ("scontrol", "show", "node", "--json") if is_new else ("sinfo", "--json")
        node_answer = await self._commands.run(nodes)
        job_answer = await self._commands.run(("squeue", "--all", "--states=all", "--json"))
        found, broken_nodes = await in_thread(document.nodes_of, node_answer)
        jobs, broken_jobs = await in_thread(document.jobs_of, job_answer)
        return Snapshot(tuple(jobs), tuple(found), (*broken_nodes, *broken_jobs))


class TextSource(_Reading):
    """`scontrol --oneliner show`."""

    name = "text"

    async def look(self) -> Snapshot:
        """All jobs and nodes."""
        show = ("scontrol", "--all", "--details", "--oneliner", "show")
        node_answer = (await self._commands.run((*show, "node"))).decode(errors="replace")
        job_answer = (await self._commands.run((*show, "job"))).decode(errors="replace")
        found, broken_nodes = await in_thread(scontrol.nodes_of, node_answer)
        jobs, broken_jobs = await in_thread(scontrol.jobs_of, job_answer)
        return Snapshot(tuple(jobs), tuple(found), (*broken_nodes, *broken_jobs))


async def source_for(commands: Commands, wanted: Literal["auto", "json", "text"]) -> Source:
    """The way to look that this Slurm has; reads its settings."""
    answer = await commands.run(("scontrol", "show", "config"))
    config = scontrol.config_of(answer.decode(errors="replace"))
    if wanted == "text":
        return TextSource(commands, config)
    try:
        document.nodes_of(await commands.run(("sinfo", "--json")))
    except Refused:
        # "unrecognized option", or no serializer plugin.
        if wanted == "json":
            raise
        return TextSource(commands, config)
    return JsonSource(commands, config)
