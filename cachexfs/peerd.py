"""Composition root of `cachexfs peer`: the store, the listener, the signals. No logic."""

from __future__ import annotations

import errno
import os
import resource
import signal
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import trio

from cachexfs.config import Config, read_secret, split_address
from cachexfs.errors import CacheXError, ConfigError
from cachexfs.peers import tls
from cachexfs.peers.adoption import FILE_NAME, Adoption
from cachexfs.peers.greeting import Identity
from cachexfs.peers.homes import Towns
from cachexfs.peers.membership import Membership, resolve
from cachexfs.peers.server import PeerServer
from cachexfs.peers.store import Store

THREADS = 8
"""At a time on the store's disk: enough to keep an NVMe busy, few enough to stay fair."""


async def run(config: Config, *, ready: Callable[[], None]) -> None:
    """Serve until SIGTERM or SIGINT; `ready` is called when connections are accepted.

    Raises `ConfigError` (no [peer], no secret, TLS files) and `CacheXError` (the port is taken, the
    store cannot be used or is in use).
    """
    _allow_all_descriptors()
    config = resolve(config)
    if config.peer is None:
        raise ConfigError("peer: this node has no [peer] section, so no replica store")
    secret = read_secret(config)
    context = tls.contexts(config.security).server
    listeners = await _listen(config.peer.listen)
    try:
        limiter = trio.CapacityLimiter(THREADS)
        opened = partial(Store, Path(config.peer.store), config.peer.limit)
        store = await trio.to_thread.run_sync(opened, limiter=limiter)
        try:
            server = PeerServer(store, config.node.name, secret, context, limiter=limiter)
            await _until_signalled(partial(_serve, config, server, listeners, secret), ready)
        finally:
            store.close()
    finally:
        for listener in listeners:
            await trio.aclose_forcefully(listener)


async def serve(
    server: PeerServer,
    listeners: list[trio.SocketListener],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Accept connections for ever; `started` when the first can come."""
    async with trio.open_nursery() as connections:
        await connections.start(
            partial(trio.serve_listeners, server.handle, listeners, handler_nursery=connections)
        )
        task_status.started()


async def _serve(
    config: Config,
    server: PeerServer,
    listeners: list[trio.SocketListener],
    secret: bytes,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """The store, and what becomes of the replicas of nodes that die."""
    assert config.peer is not None
    async with trio.open_nursery() as nursery:
        membership = Membership(config)
        towns = Towns(membership, _identity(config, secret), nursery)
        adoption = Adoption(
            server.store,
            config.node.name,
            server.heard,
            towns.of,
            Path(config.node.state_dir) / FILE_NAME,
            config.peer.adopt_after,
            trio.CapacityLimiter(1),
        )
        nursery.start_soon(membership.run)
        nursery.start_soon(adoption.run)
        await nursery.start(partial(serve, server, listeners))
        task_status.started()


def _allow_all_descriptors() -> None:
    """The usual limit of 1024 is for programs that use select(2), and strangers could reach it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _identity(config: Config, secret: bytes) -> Identity:
    return Identity(config.node.name, secret, tls.contexts(config.security).client)


async def _listen(listen: str) -> list[trio.SocketListener]:
    host, port = split_address(listen, "peer.listen")
    try:
        return await trio.open_tcp_listeners(port, host=host)
    except OSError as error:
        taken = error.errno == errno.EADDRINUSE
        why = "the port is taken" if taken else error.strerror or os.strerror(error.errno or 0)
        raise CacheXError(f"peer.listen: cannot listen on {listen}: {why}") from None


async def _until_signalled(
    service: Callable[..., Awaitable[object]], ready: Callable[[], None]
) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            await nursery.start(service)
            ready()
            async for _ in signals:
                nursery.cancel_scope.cancel()
                break
