"""A supervisor's link to the agent of one node: it opens a session, watches its lease, and opens another when it ends.

A session whose node is silent, or whose line has ended, is *cut off*: the run goes on without its workers at once, but
they count as alive until it is certain that they are dead. That is certain when the session says so, when the agent of
the same machine opens another session (it ends the old one first), or when the lease and a margin have passed since our
last echo. A cut-off session gets no further echo, so it cannot come back.
"""

from __future__ import annotations

import os
import ssl
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from argosy.live.supervisor.cluster.agent_address import AgentAddress
from argosy.live.supervisor.cluster.lease import Echoes, LeaseTimes, now
from argosy.live.supervisor.cluster.line import Line, Message
from argosy.live.supervisor.reactor import Reactor

AGAIN_S = 0.25  # after a failed connection; doubled up to the longest wait
LONGEST_WAIT_S = 2.0


class NodeLink:
    """The link of one run to one node.

    `before_open` is called with the node and the id of its machine before anything can run there. `on_message` gets the
    messages of the session, `on_cut` is called when it is cut off, and `on_fenced` when all
    workers of former sessions are certainly dead.
    """

    def __init__(
        self,
        node: str,
        folder: Path,
        times: LeaseTimes,
        reactor: Reactor,
        describe: Callable[[str], Mapping[str, Any]],
        *,
        before_open: Callable[[str, str], None],
        on_message: Callable[[NodeLink, Message], None],
        on_cut: Callable[[NodeLink, str], None],
        on_fenced: Callable[[NodeLink], None],
    ) -> None:
        self.node, self._folder, self._times, self._reactor, self._describe = node, folder, times, reactor, describe
        self._before_open, self._on_message, self._on_cut, self._on_fenced = before_open, on_message, on_cut, on_fenced
        self.problem = ""  # why there is no session
        self.opened: Message | None = None  # what the agent has said about the session in force
        self.closing = False
        self._line: Line | None = None
        self._echoes: Echoes | None = None  # of the newest session, until its workers are certainly dead
        self._host_id = ""
        self._waiting: list[Message] = []  # to be sent as soon as there is a session
        self._answers: list[tuple[AgentAddress, tuple[ssl.SSLSocket, Mapping[str, Any]] | OSError]] = []
        self._reader, self._writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._dialling, self._pause_s = False, AGAIN_S
        reactor.watch(self._reader, self._answered)

    @property
    def fenced(self) -> bool:
        """Return whether no worker of this run can be alive on the node."""
        return self._echoes is None

    @property
    def open(self) -> bool:
        return self._line is not None

    def connect(self) -> None:
        """Open a session, unless there is one; it is tried again until it succeeds."""
        if self._line is None and not self._dialling and not self.closing:
            self._dialling = True
            threading.Thread(target=self._dial, name=f"argosy-dial-{self.node}", daemon=True).start()

    def send(self, message: Message) -> None:
        """Send a message; a start waits until there is a session, anything else concerns only the one in force."""
        if self._line is not None:
            self._line.send(message)
        elif message["op"] == "start":
            self._waiting.append(message)

    def withdraw(self, number: int) -> bool:
        """Return whether the start of this worker was still waiting, and forget it."""
        before = len(self._waiting)
        self._waiting = [one for one in self._waiting if one["id"] != number]
        return len(self._waiting) < before

    def waits(self, number: int) -> bool:
        """Return whether the start of this worker waits for a session."""
        return any(one["id"] == number for one in self._waiting)

    def close(self) -> None:
        """Ask the agent to kill what is left of the session, and to say so."""
        self.closing = True
        self._waiting.clear()
        if self._line is not None:
            self._line.send({"op": "close"})
        elif not self.fenced:
            self._dialling = self._dialling or self._dial_for_word()

    def look(self) -> None:
        """Find out whether the node has become silent, or is certainly fenced; called several times a second."""
        if self._line is not None and self._echoes is not None and self._echoes.silent:
            self._cut(f"was silent for {self._times.silence:g} s")
        if self._line is None and self._echoes is not None and self._echoes.fenced:
            self._mark_fenced()

    def forgive(self) -> None:
        """Start to wait for a beat anew, because this process itself was held up."""
        if self._echoes is not None:
            self._echoes.heard = now()

    def end(self) -> None:
        """Release everything; called when the node is fenced."""
        if self._line is not None:
            self._line.close()
            self._line = None
        self._reactor.unwatch(self._reader)

    # -- connecting: in a thread, because it waits

    def _dial(self, purpose: str = "run") -> None:
        address: AgentAddress | None = None
        try:
            address = AgentAddress.read(self._folder, self.node)
            if address is None:
                raise OSError(f"no agent of {self.node} has ever registered")
            about = self._describe(self.node)
            result: Any = address.dial(purpose, marker=about["marker"], times=self._times.plain())
        except OSError as problem:
            result = problem
        except Exception as problem:  # an agent that answers nonsense must not end this thread unnoticed
            result = OSError(f"{type(problem).__name__}: {problem}")
        self._answers.append((address, result))  # type: ignore[arg-type]
        os.write(self._writer, b".")

    def _dial_for_word(self) -> bool:
        threading.Thread(target=self._dial, args=("fence",), daemon=True).start()
        return True

    def _answered(self) -> None:
        os.read(self._reader, 64)
        while self._answers:
            address, result = self._answers.pop(0)
            self._dialling = False
            if isinstance(result, OSError):
                self.problem = str(result) or type(result).__name__
                self._pause_s = min(2 * self._pause_s, LONGEST_WAIT_S)
                self._reactor.later(self._pause_s, self._again)
                continue
            self._pause_s = AGAIN_S
            self._begin(address, *result)

    def _again(self) -> None:
        if self.closing:
            if not self.fenced and self._line is None and not self._dialling:
                self._dialling = self._dial_for_word()
        else:
            self.connect()

    def _begin(self, address: AgentAddress, stream: ssl.SSLSocket, welcome: Mapping[str, Any]) -> None:
        """Begin a session. That the same machine welcomes us is its word that nothing of an older one is alive."""
        if not self.fenced and address.host_id == self._host_id:
            self._mark_fenced()
        if self.closing or not self.fenced:  # another machine: the old one's lease must end first
            stream.close()
            self.problem = "" if self.closing else f"{self.node} is another machine now; the old one is not fenced yet"
            self._reactor.later(LONGEST_WAIT_S / 4, self._again)
            return
        self._host_id = address.host_id
        self._before_open(self.node, address.host_id)
        self._echoes = Echoes(self._times)
        self._line = Line(stream, self._reactor, self._heard, lambda: self._cut("was lost: its agent has ended"))
        self._line.send({"op": "open", "n": welcome.get("beat"), "run": dict(self._describe(self.node))})
        waiting, self._waiting = self._waiting, []
        for message in waiting:
            self._line.send(message)
        self.problem = ""

    # -- the session

    def _heard(self, message: Message) -> None:
        assert self._line is not None and self._echoes is not None
        op = message.get("op")
        if op == "beat":
            self._echoes.echo()
            self._line.send({"op": "echo", "n": message.get("n")})
        elif op == "closed":  # the session's word that all is dead
            line, self._line = self._line, None
            line.close()
            if not self.closing:
                self.problem = f"was given up by its agent: {str(message.get('why'))[:200]}"
                self._on_cut(self, self.problem)
            self._mark_fenced()
            self._reactor.later(AGAIN_S, self._again)
        else:
            if op == "opened":
                self.opened = message
            self._on_message(self, message)

    def _cut(self, why: str) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None
        self.opened, self.problem = None, why
        self._on_cut(self, why)
        if self.closing:
            self._again()
        else:
            self.connect()

    def _mark_fenced(self) -> None:
        self._echoes = None
        self.opened = None
        self._on_fenced(self)
