"""A group of workers that talk to each other: made for one plan, thrown away with it.

Over gloo on the loopback interface, where nobody but workers of the own user is accepted; gradients on GPUs go over
NCCL.
Groups are made from torch's process groups directly, not through its global one, so that making and closing one again
and again leaves nothing behind.

When a member dies, the calls of its neighbours fail; the others would wait for them. So whoever fails shuts down its
own sockets, and the failure runs through the group. A broken group's objects are kept: to destroy them can hang.
"""

from __future__ import annotations

import os
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

CONNECT = timedelta(seconds=10)  # everybody is known to be there when a group is made
STORE = timedelta(seconds=30)
PATIENCE = timedelta(minutes=30)  # a paused member is no reason to fail: the supervisor judges who is lost

ADDRESS = "127.0.0.1"

dist: Any = torch.distributed  # its stubs leave out most of what is used here
c10d: Any = torch.distributed.distributed_c10d
Store = Any  # one of torch.distributed

_broken: list[Any] = []


class GroupBroken(ArgosyError):
    """Somebody of the group is lost."""


class Group:
    """Collectives among `world` workers. With one alone they do nothing."""

    def __init__(self, store: Store | None, rank: int, world: int) -> None:
        self.rank, self.world = rank, world
        self._store = store
        self._corners = 0
        self._gloo: Any = None
        self._nccl: Any = None
        self._sockets: dict[int, str] = {}
        if world > 1 and store is not None:
            _device()  # its listening socket serves all groups to come, and is none of this one
            try:
                with self.noting_sockets():
                    self._gloo = _gloo(dist.PrefixStore("gloo", store), rank, world)
            except GroupBroken:
                self.abandon()
                raise
            except RuntimeError as problem:
                raise GroupBroken(f"the group could not be made: {problem}") from None

    @contextmanager
    def noting_sockets(self) -> Iterator[None]:
        """What is opened inside belongs to this group: `shut` reaches it."""
        before = sockets.open_sockets()
        yield
        new = {n: what for n, what in sockets.open_sockets().items() if before.get(n) != what}
        sockets.keep_from_children(new)
        self._sockets |= new
        if others := strangers(new):
            self.shut()
            raise GroupBroken(f"a process of another user ({min(others)}) took the place of a worker")

    def all_reduce(self, tensor: Tensor) -> None:
        """Sum over all, in place."""
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
        """Everybody's tensor (of one shape), in order of rank."""
        found = [torch.empty_like(tensor) for _ in range(self.world)]
        if self.world == 1:
            return [tensor.clone()]
        options = c10d.AllgatherOptions()
        options.timeout = PATIENCE
        self._wait(lambda: self._for(tensor).allgather([found], [tensor], options))
        return found

    def all_to_all(self, received: Tensor, given: Tensor, receive: Sequence[int], give: Sequence[int]) -> None:
        """Rank r gets the r-th part of everybody's flat tensor; `receive` and `give` are the lengths of the parts."""
        if self.world == 1:
            received.copy_(given)
            return
        options = c10d.AllToAllOptions()
        options.timeout = PATIENCE
        gloo = self._for(given)
        self._wait(lambda: gloo.alltoall_base(received, given, list(receive), list(give), options))

    def gather_bytes(self, data: bytes) -> list[bytes]:
        """Everybody's bytes, in order of rank."""
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
        """A corner of the run's store that nobody has used before."""
        self._corners += 1
        return dist.PrefixStore(f"{purpose}-{self._corners}", self._store)

    def shut(self) -> None:
        """Wake whoever waits in this group, here and elsewhere. Any thread may call it."""
        sockets.shut_down(self._sockets)
        if self._nccl is not None:
            self._nccl.abort()

    def close(self) -> None:
        """The group is whole and nobody waits in it any more."""
        sockets.forget(self._sockets)
        self._sockets = {}
        self._gloo = self._nccl = None

    def abandon(self) -> None:
        """The group is broken: shut it, and never destroy it."""
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
            raise GroupBroken("the group was closed")
        try:
            start().wait()
        except RuntimeError as problem:
            self.shut()
            raise GroupBroken(str(problem).split("\n")[0]) from None


def _tensor(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.zeros(0, dtype=torch.uint8)


def keep_forever(*broken: Any) -> None:
    """To destroy a broken group can hang."""
    _broken.append(broken)


def store_at(path: str) -> Store:
    """The store in which the members of a plan meet: a file that only their user can open."""
    if not os.path.isdir(os.path.dirname(path)):  # to open it would wait for minutes
        raise GroupBroken(f"{path} is gone, and with it the supervisor")
    store = dist.FileStore(path, -1)
    store.set_timeout(STORE)
    return store


@cache
def _device() -> Any:
    return dist.ProcessGroupGloo.create_device(hostname=ADDRESS)


def _gloo(store: Store, rank: int, world: int) -> Any:
    options = dist.ProcessGroupGloo._Options()
    options._devices = [_device()]
    options._threads = 1
    options._timeout = CONNECT
    return dist.ProcessGroupGloo(store, rank, world, options)
