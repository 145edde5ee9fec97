"""The network: a switch in a namespace of its own, and cables from it to every host.

            switch: bridge "peers"              bridge "pfs" (gluster only)
                    │  10.77.0.0/24                     │  10.77.1.0/24
              host1 ┴ host2 ┴ host3          host1-pfs ┴ host2-pfs ┴ storage-pfs
                │                                │
              "peers" in host1                 "pfs" in host1

Nothing of it is in the machine's own namespace, so its firewall, its routes and its interfaces have
no part in it, and it goes with the namespaces.
"""

from __future__ import annotations

import json
from typing import Any

from tools.hosts import netns
from tools.hosts.place import Place
from tools.hosts.spec import NETWORKS, SWITCH, Link, Spec, address
from tools.hosts.system import run, system

NOBODY = "02:00:00:00:00:01"
"""An Ethernet address that no interface has: what is sent there is lost without a word."""
_BURST_S = 0.01
_MIN_BURST_BYTES = 16 << 10
_TUNED = {"tcp_rto_max_ms": 1000, "tcp_retries2": 255, "tcp_syn_retries": 127}
"""So that a mended link is noticed within a second (Linux 6.15 and newer; otherwise a connection
tries again after as long as the link was cut) and a cut one ends no connection for some minutes."""


class Wiring:
    """The network of one cluster."""

    def __init__(self, spec: Spec) -> None:
        self._switch = spec.namespace(SWITCH)
        self._links: tuple[Link, ...] = ("peers", "pfs") if spec.pfs == "gluster" else ("peers",)

    def build(self) -> None:
        """The switch. Raises `ClusterError`."""
        netns.create(self._switch)
        for link in self._links:
            system("ip", "-n", self._switch, "link", "add", link, "type", "bridge")
            system("ip", "-n", self._switch, "link", "set", link, "up")

    def plug(self, place: Place, number: int) -> None:
        """A new namespace for this host, with its cables. Raises `ClusterError`."""
        netns.create(place.namespace)
        self._tune(place)
        for link in self._links:
            self._cable(place, link, address(link, number))

    def _cable(self, place: Place, link: Link, own: str) -> None:
        port, switch = port_of(place, link), self._switch
        end = ["type", "veth", "peer", "name", link, "netns", place.namespace]
        system("ip", "-n", switch, "link", "add", port, *end)
        system("ip", "-n", switch, "link", "set", port, "master", link, "up")
        system("ip", "-n", place.namespace, "addr", "add", f"{own}/24", "dev", link)
        system("ip", "-n", place.namespace, "link", "set", link, "up")

    def _tune(self, place: Place) -> None:
        entered = ["nsenter", f"--net={netns.file_of(place.namespace)}", "--", "sh", "-c"]
        lines = (
            f"[ ! -e /proc/sys/net/ipv4/{key} ] || echo {value} > /proc/sys/net/ipv4/{key}"
            for key, value in _TUNED.items()
        )
        system(*entered, "; ".join(lines))

    # --- one link of one host

    def cut(self, place: Place, link: Link) -> None:
        """Pull the cable at the switch: neither end hears of the other, and nothing is answered."""
        system("ip", "-n", self._switch, "link", "set", port_of(place, link), "down")

    def mend(self, place: Place, link: Link) -> None:
        """Plug it in again."""
        system("ip", "-n", self._switch, "link", "set", port_of(place, link), "up")

    def is_cut(self, place: Place, link: Link) -> bool:
        """Whether the cable is pulled."""
        told = _ask("ip", "-n", self._switch, "-j", "link", "show", "dev", port_of(place, link))
        return any("UP" not in each["flags"] for each in told)

    def limit(self, place: Place, link: Link, rate_bits: int | None) -> None:
        """So many bits a second, each way; None: as fast as it goes (tc-tbf(8))."""
        for namespace, device in self._ends(place, link):
            root = ["dev", device, "root"]
            if rate_bits is None:
                run(["tc", "-n", namespace, "qdisc", "del", *root], 10.0)  # fails where none is
                continue
            burst = max(_MIN_BURST_BYTES, int(rate_bits / 8 * _BURST_S))
            bucket = ["rate", f"{rate_bits}bit", "burst", str(burst), "latency", "100ms"]
            system("tc", "-n", namespace, "qdisc", "replace", *root, "tbf", *bucket)

    def limit_of(self, place: Place, link: Link) -> int | None:
        """The limit in bits a second."""
        for each in _ask("tc", "-n", place.namespace, "-j", "qdisc", "show", "dev", link):
            if each["kind"] == "tbf":
                return int(each["options"]["rate"]) * 8
        return None

    def _ends(self, place: Place, link: Link) -> list[tuple[str, str]]:
        return [(place.namespace, link), (self._switch, port_of(place, link))]

    # --- between two hosts

    def partition(self, place: Place, number: int) -> None:
        """What this host sends to another is lost from now on, without an error."""
        neighbour = [address("peers", number), "lladdr", NOBODY, "nud", "permanent"]
        system("ip", "-n", place.namespace, "neigh", "replace", *neighbour, "dev", "peers")

    def heal(self, place: Place, number: int) -> None:
        """The end of that."""
        neighbour = [address("peers", number), "dev", "peers"]
        run(["ip", "-n", place.namespace, "neigh", "del", *neighbour], 10.0)  # fails where none is

    def lost_to(self, place: Place) -> list[int]:
        """The numbers of the hosts to which all is lost."""
        told = _ask("ip", "-n", place.namespace, "-j", "neigh", "show", "nud", "permanent")
        network = NETWORKS["peers"] + "."
        return [
            int(each["dst"].removeprefix(network))
            for each in told
            if each["dst"].startswith(network) and each.get("lladdr") == NOBODY
        ]


def port_of(place: Place, link: Link) -> str:
    """The switch's end of a host's cable."""
    return place.name if link == "peers" else f"{place.name}-{link}"


def _ask(*command: str) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = json.loads(system(*command) or "[]")
    return told
