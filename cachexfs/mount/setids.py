"""Set-user-ID and set-group-ID bits of files that the kernel writes past us.

With passthrough the kernel leaves it to us to take the bits from a file that is written
(HANDLE_KILLPRIV_V2), and we do not see the writes. So bits stay as long as the file looks as it did
when it was given them; else they go when the writer closes. Nobody can run it before: a file that
is open for writing cannot be executed.
"""

from __future__ import annotations

import os
import stat

from cachexfs.mount.passthrough import Passthrough
from cachexfs.ram.node import Node, Signature
from cachexfs.ram.tier import Tier
from cachexfs.ram.tree import Tree

_BITS = stat.S_ISUID | stat.S_ISGID


class SetIds:
    """Gives set-ID bits, and takes them away."""

    def __init__(self, tree: Tree, tier: Tier, passthrough: Passthrough) -> None:
        self._tree = tree
        self._tier = tier
        self._passthrough = passthrough

    def trust(self, node: Node) -> None:
        """The file was given its mode knowingly, with the content that it has now."""
        assert node.blob is not None
        status = self._tier.status(node.blob)
        if status.st_mode & _BITS:
            node.trusted_as = Signature(status.st_size, status.st_mtime_ns)
            self._tree.save(node)

    def distrust(self, node: Node) -> None:
        """Take set-ID bits away, if the content is not what they were given to."""
        if self._passthrough.backings is None or node.blob is None:
            return
        status = self._tier.status(node.blob)
        looks = Signature(status.st_size, status.st_mtime_ns)
        if status.st_mode & _BITS and looks != node.trusted_as:
            os.chmod(self._tier.name(node.blob), status.st_mode & 0o7777 & ~_BITS)
