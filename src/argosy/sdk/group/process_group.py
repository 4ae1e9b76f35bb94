"""The process group of one plan: made when the workers switch to the plan, closed when they leave it.

It uses gloo on the loopback interface, where only workers of the same user are accepted, and NCCL for tensors on GPUs.
Groups are made directly from torch's process group classes, not through its global group, so that groups can be made
and closed repeatedly without leaking anything.

When a member dies, only the calls of its neighbours fail, and the others would wait for these. So a worker whose call
fails shuts down its own sockets, and the failure spreads through the group. The objects of a broken group are kept,
because destroying them can hang.
"""

from __future__ import annotations

import hmac
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from typing import Any

import torch
import torch.distributed
from torch import Tensor

from argosy.errors import ArgosyError
from argosy.sdk.group import sockets
from argosy.sdk.group.peers import strangers

CONNECT = timedelta(seconds=10)  # short, because all members have met before the group is made
STORE = timedelta(seconds=30)
PATIENCE = timedelta(minutes=30)  # long, because a member may be paused; the supervisor decides who is lost

ADDRESS = "127.0.0.1"  # unless ARGOSY_ADDRESS names that of this host, for a job on several

dist: Any = torch.distributed  # its type stubs lack most of what is used here
c10d: Any = torch.distributed.distributed_c10d
Store = Any  # a store of torch.distributed

_broken: list[Any] = []


class GroupBroken(ArgosyError):
    """A member of the group is lost."""


class Group:
    """Collective operations among `world` workers; with a single worker they do nothing."""

    def __init__(self, store: Store | None, rank: int, world: int) -> None:
        self.rank, self.world = rank, world
        self._store = store
        self._store_parts = 0
        self._gloo: Any = None
        self._nccl: Any = None
        self._sockets: dict[int, str] = {}
        if world > 1 and store is not None:
            _device()  # made first: its listening socket serves all groups, so it must not belong to this one
            try:
                with self.noting_sockets():
                    self._gloo = _gloo(dist.PrefixStore("gloo", store), rank, world)
                if "ARGOSY_ADDRESS" in os.environ:
                    self._check_members()
            except GroupBroken:
                self.abandon()
                raise
            except RuntimeError as problem:
                raise GroupBroken(f"the process group could not be made: {problem}") from None

    @contextmanager
    def noting_sockets(self) -> Iterator[None]:
        """Add the sockets that are opened inside the block to this group, so that `shut` reaches them."""
        before = sockets.open_sockets()
        yield
        new = {n: what for n, what in sockets.open_sockets().items() if before.get(n) != what}
        sockets.keep_from_children(new)
        self._sockets |= new
        if others := strangers(new):
            self.shut()
            raise GroupBroken(f"a process of another user (id {min(others)}) has connected in place of a worker")

    def _check_members(self) -> None:
        """Check that a member of this group is at the other end of every connection, because gloo does not.

        On several hosts, any program that can reach a worker's port might take the place of another worker. Only
        members can read the key in the store.
        """
        store: Store = self._store
        if self.rank == 0:
            store.set("key", secrets.token_bytes(32))
        key = bytes(store.get("key"))
        words = [_proof(key, self.rank, other) for other in range(self.world)]
        received = torch.zeros(len(words[0]) * self.world, dtype=torch.uint8)
        size = [len(words[0])] * self.world
        self.all_to_all(received, _tensor(b"".join(words)), size, size)
        expected = b"".join(_proof(key, other, self.rank) for other in range(self.world))
        if not hmac.compare_digest(bytes(received.numpy()), expected):
            self.shut()
            raise GroupBroken("a program that is not a worker of this job has connected in place of a worker")

    def all_reduce(self, tensor: Tensor) -> None:
        """Sum the tensor over all workers, in place."""
        if self.world > 1:
            options = c10d.AllreduceOptions()
            options.timeout = PATIENCE
            self._wait(lambda: self._for(tensor).allreduce([tensor], options))

    def broadcast(self, tensor: Tensor, source: int) -> None:
        if self.world > 1:
            options = c10d.BroadcastOptions()
            options.rootRank, options.rootTensor, options.timeout = source, 0, PATIENCE
            self._wait(lambda: self._for(tensor).broadcast([tensor], options))

    def all_gather(self, tensor: Tensor) -> list[Tensor]:
        """Return the tensors of all workers, which must have the same shape, in order of rank."""
        found = [torch.empty_like(tensor) for _ in range(self.world)]
        if self.world == 1:
            return [tensor.clone()]
        options = c10d.AllgatherOptions()
        options.timeout = PATIENCE
        self._wait(lambda: self._for(tensor).allgather([found], [tensor], options))
        return found

    def all_to_all(self, received: Tensor, given: Tensor, receive: Sequence[int], give: Sequence[int]) -> None:
        """Send the r-th part of each worker's flat tensor to rank r; `receive` and `give` are lengths of parts."""
        if self.world == 1:
            received.copy_(given)
            return
        options = c10d.AllToAllOptions()
        options.timeout = PATIENCE
        gloo = self._for(given)
        self._wait(lambda: gloo.alltoall_base(received, given, list(receive), list(give), options))

    def gather_bytes(self, data: bytes) -> list[bytes]:
        """Return the bytes of all workers, in order of rank."""
        sizes = [int(size) for size in self.all_gather(torch.tensor([len(data)]))]
        padded = torch.zeros(max(sizes), dtype=torch.uint8)
        padded[: len(data)] = _tensor(data)
        return [bytes(one[:size].numpy()) for one, size in zip(self.all_gather(padded), sizes)]

    def broadcast_bytes(self, data: bytes, source: int) -> bytes:
        size = torch.tensor([len(data)])
        self.broadcast(size, source)
        content = _tensor(data) if self.rank == source else torch.zeros(int(size), dtype=torch.uint8)
        if int(size):
            self.broadcast(content, source)
        return bytes(content.numpy())

    def store_for(self, purpose: str) -> Store:
        """Return a part of the run's store that is not in use yet."""
        self._store_parts += 1
        return dist.PrefixStore(f"{purpose}-{self._store_parts}", self._store)

    def shut(self) -> None:
        """Make all pending calls in this group fail, here and on other workers. Any thread may call this."""
        sockets.shut_down(self._sockets)
        if self._nccl is not None:
            self._nccl.abort()

    def close(self) -> None:
        """Close a group that is intact and has no pending calls."""
        sockets.forget(self._sockets)
        self._sockets = {}
        self._gloo = self._nccl = None

    def abandon(self) -> None:
        """Shut down a broken group, and keep its objects: destroying them can hang."""
        self.shut()
        sockets.forget(self._sockets)
        keep_forever(self._gloo, self._nccl)
        self._sockets = {}
        self._gloo = self._nccl = None

    def _for(self, tensor: Tensor) -> Any:
        if not tensor.is_cuda:
            return self._gloo
        if self._nccl is None:
            self._nccl = dist.ProcessGroupNCCL(dist.PrefixStore("nccl", self._store), self.rank, self.world)
        return self._nccl

    def _wait(self, start: Any) -> None:
        if self._gloo is None:
            raise GroupBroken("the process group is closed")
        try:
            start().wait()
        except RuntimeError as problem:
            self.shut()
            raise GroupBroken(str(problem).split("\n")[0]) from None


def _tensor(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.zeros(0, dtype=torch.uint8)


def keep_forever(*broken: Any) -> None:
    """Keep the objects of a broken group, because destroying them can hang."""
    _broken.append(broken)


def store_at(path: str) -> Store:
    """Open the store of a plan: on one host a file, in a folder that only the run's user can enter."""
    if path.startswith("relay:"):
        from argosy.sdk.group.relayed_store import relayed_store

        return relayed_store(path)
    if not os.path.isdir(os.path.dirname(path)):  # otherwise opening it would wait for minutes
        raise GroupBroken(f"the folder of {path} is gone, so the supervisor has ended")
    store = dist.FileStore(path, -1)
    store.set_timeout(STORE)
    return store


def _proof(key: bytes, sender: int, receiver: int) -> bytes:
    return hmac.digest(key, b"worker %d to %d" % (sender, receiver), "sha256")


@cache
def _device() -> Any:
    return dist.ProcessGroupGloo.create_device(hostname=os.environ.get("ARGOSY_ADDRESS", ADDRESS))


def _gloo(store: Store, rank: int, world: int) -> Any:
    options = dist.ProcessGroupGloo._Options()
    options._devices = [_device()]
    options._threads = 1
    options._timeout = CONNECT
    return dist.ProcessGroupGloo(store, rank, world, options)
