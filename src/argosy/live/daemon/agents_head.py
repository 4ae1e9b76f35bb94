"""What the daemon does for agents that an engine starts: it makes their tokens, and drains their nodes in time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from argosy.live.backends.cluster.keeper import Head
from argosy.live.daemon.service import Service
from argosy.live.store import Actor

ENGINE = Actor("engine", "daemon")
ANSWER_S = 30.0
Result = TypeVar("Result")


def head_for_agents(service: Service, address: str, loop: asyncio.AbstractEventLoop) -> Head:
    """Return what the keeper of agents needs. It calls from another thread; the store is used in the loop only."""
    ca = service.home.folder / "tls" / "ca.pem"

    def in_loop(do: Callable[[], Result]) -> Result:
        async def call() -> Result:
            return do()

        return asyncio.run_coroutine_threadsafe(call(), loop).result(ANSWER_S)

    def new_token(node: str) -> str:
        for token in service.tokens.list():
            if (token.owner, token.role) == (node, "agent"):
                service.tokens.revoke(token.id, ENGINE)
        return service.tokens.add(node, "agent", None, ENGINE)[1]

    def drain(node: str, away: bool) -> None:
        service.drain(node, ENGINE, emptied=True) if away else service.undrain(node, ENGINE)

    for node in service.nodes():
        if node.drained_by == ENGINE.who:  # by a former daemon; the keeper does it again if it is still needed
            service.undrain(node.name, ENGINE)
    return Head(
        address,
        ca.read_text("utf-8") if ca.exists() else "",
        lambda node: in_loop(lambda: new_token(node)),
        lambda node, away: in_loop(lambda: drain(node, away)),
    )
