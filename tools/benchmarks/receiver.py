"""The plain end of a socket copy: recv, write, fsync, one byte back.

    python -m tools.benchmarks.receiver DIRECTORY [ADDRESS]

Prints its port. Each connection is one file, which is deleted once it was acknowledged.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

BUFFER_BYTES = 1 << 20


def receive(connection: socket.socket, directory: Path) -> None:
    """One file to disk, as a store keeps it: file and directory fsynced."""
    path = directory / "received"
    buffer = memoryview(bytearray(BUFFER_BYTES))
    with path.open("wb", buffering=0) as file:
        while length := connection.recv_into(buffer):
            file.write(buffer[:length])
        os.fsync(file.fileno())
    fd = os.open(directory, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)
    connection.sendall(b"!")
    path.unlink()


def main(directory: Path, address: str = "127.0.0.1") -> None:
    """Serve, one connection after the other, until killed."""
    with socket.create_server((address, 0)) as server:
        print(server.getsockname()[1], flush=True)
        while True:
            connection, _ = server.accept()
            with connection:
                receive(connection, directory)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
