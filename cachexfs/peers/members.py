"""Who the members are: from the configuration, from Slurm, or from a file. Pure.

A file has a line for each member, `NAME HOST:PORT [RACK]`; `#` begins a remark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cachexfs.config import Member, Members, split_address
from cachexfs.errors import ConfigError
from cachexfs.peers.hostlist import expand

NODELIST = ("SLURM_JOB_NODELIST", "SLURM_NODELIST")
"""Where Slurm names the nodes of the job (srun(1)); the second is the older name."""


def from_slurm(environ: Mapping[str, str], settings: Members) -> tuple[Member, ...]:
    """The nodes of the job. Raises `ConfigError` outside of one."""
    nodelist = next((environ[name] for name in NODELIST if environ.get(name)), None)
    if nodelist is None:
        raise ConfigError('members.source is "slurm", and SLURM_JOB_NODELIST is not set')
    racks = racks_of(settings)
    return tuple(
        Member(name=name, address=f"{name}:{settings.port}", rack=racks.get(name, ""))
        for name in expand(nodelist)
    )


def racks_of(settings: Members) -> dict[str, str]:
    """The rack of each host that `members.racks` names."""
    return {name: rack for rack, hosts in settings.racks.items() for name in expand(hosts)}


def parse(text: str, settings: Members, origin: str) -> tuple[Member, ...]:
    """The members that a file names. Raises `ConfigError` with the line."""
    racks, members = racks_of(settings), []
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.partition("#")[0].split()
        if not fields:
            continue
        where = f"{origin}:{number}"
        if not 2 <= len(fields) <= 3:
            raise ConfigError(f"{where}: not NAME HOST:PORT [RACK]")
        split_address(fields[1], where)
        rack = fields[2] if len(fields) == 3 else racks.get(fields[0], "")
        members.append(Member(name=fields[0], address=fields[1], rack=rack))
    if not members:
        raise ConfigError(f"{origin}: names no member")
    if len({member.name for member in members}) < len(members):
        raise ConfigError(f"{origin}: two members have the same name")
    return tuple(members)


def others(members: Sequence[Member], node: str) -> tuple[Member, ...]:
    """The members that are not this node."""
    return tuple(member for member in members if member.name != node)
