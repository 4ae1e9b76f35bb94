"""The daemon: one asyncio process with the store, the API, a planner and a backend.

Several times a second, and at once when something happens, it makes a pass: it polls the backend, asks the policy, and
sends orders. It may be killed at any moment: all that matters is in the database, and the next daemon adopts what still
runs.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict, replace
from typing import Any

from argosy.cluster.cluster import Cluster
from argosy.errors import message_of
from argosy.live.backends.base import Backend, Phase, Run
from argosy.live.clock import Clock
from argosy.live.daemon.accounts import Accounts
from argosy.live.daemon.admission import MAX_GRACE_S
from argosy.live.daemon.agents_head import head_for_agents
from argosy.live.daemon.bookkeeper import Bookkeeper
from argosy.live.daemon.dispatcher import Dispatcher, Failure
from argosy.live.daemon.housekeeping import Housekeeping
from argosy.live.daemon.inspector import Inspector
from argosy.live.daemon.notifier import NoticeSettings, Notifier
from argosy.live.daemon.planner_client import Planner, PlannerClient, PlannerFactory
from argosy.live.daemon.preparer import Preparer
from argosy.live.daemon.promotion import Promotion
from argosy.live.daemon.reconcile import grace_s
from argosy.live.daemon.service import Service
from argosy.live.daemon.submissions import MIN_FREE_BYTES
from argosy.live.daemon.tokens import ensure_operator_token
from argosy.live.daemon_log import LOGGER, note
from argosy.live.durable_files import identity
from argosy.live.errors import DatabaseLost, NoSpace
from argosy.live.home import Home
from argosy.live.http import local_socket
from argosy.live.http.connections import ConnectionLimits, most_connections, raise_descriptor_limit
from argosy.live.http.server import Server, Web
from argosy.live.http.tls import ServerTls
from argosy.live.planner.messages import NodeState, Setup, Snapshot
from argosy.live.planner.process import PlannerProcess
from argosy.live.store import RunRow, Store
from argosy.live.store.schema import NODES

POLL_S = 0.25
NODES_EVERY_S = 2.0
POLL_LIMIT_S = 30.0
OWNERS_CONNECTIONS = 100  # at the socket in the home, in addition to those of the network

Application = Callable[..., Any]  # ASGI


class Daemon:
    """The daemon of one home. `await run()` serves until `stop()` or a signal; jobs continue without it.

    `app` makes the API from the service.
    """

    def __init__(
        self,
        home: Home,
        cluster: Cluster,
        policy: str,
        backend: Backend,
        *,
        planner: PlannerFactory | None = None,
        app: Callable[[Service], Application] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        clock: Clock | None = None,
        poll_s: float = POLL_S,
        switch_users: bool | None = None,
        min_free_bytes: int = MIN_FREE_BYTES,
        new_database: bool = False,
        max_grace_s: float = MAX_GRACE_S,
        connections: ConnectionLimits | None = None,
        tls: ServerTls | None = None,
        notices: NoticeSettings | None = None,
        shadow: str | None = None,
    ) -> None:
        self.home, self.cluster, self.policy, self.backend = home, cluster, policy, backend
        self._make_planner = planner or self._planner_process
        self._app, self._host, self._port, self._poll_s = app, host, port, poll_s
        switches = os.geteuid() == 0 and backend.runs_as_owners if switch_users is None else switch_users
        self._accounts = Accounts(switches)
        self._min_free_bytes, self._new_database, self._max_grace_s = min_free_bytes, new_database, max_grace_s
        self._notices = notices or NoticeSettings()
        self._shadow = shadow
        self._connections, self._tls = connections or ConnectionLimits(), tls
        self._clock = clock or Clock()
        self._wake, self._stop = asyncio.Event(), asyncio.Event()
        self._preparer = Preparer(backend, self._accounts)
        self._nodes_s = float("-inf")
        self.address = ""
        self.ready = asyncio.Event()  # set when runs have been adopted and requests are answered
        self.service: Service
        self.bookkeeper: Bookkeeper

    def stop(self) -> None:
        """End the daemon cleanly; this may be called from a signal handler."""
        self._stop.set()
        self._wake.set()

    async def run(self, stop_jobs: bool = False) -> None:
        """Serve until stopped. With `stop_jobs`, every run saves its work and leaves before the daemon ends."""
        async with AsyncExitStack() as stack:
            await self._open(stack)
            note("serving", address=self.address, home=str(self.home.folder), policy=self.policy)
            self.ready.set()
            try:
                await self._loop(lambda: self._stop.is_set())
                if stop_jobs:
                    self.bookkeeper.stop_everything()
                    await self._loop(lambda: not self.service.store.runs, ask=False)
                    if release := getattr(self.backend, "release", None):
                        await asyncio.to_thread(release)
            except DatabaseLost as lost:
                raise self._leave(lost) from None
            note("ending; jobs continue" if self.service.store.runs else "ending")

    async def _open(self, stack: AsyncExitStack) -> None:
        self.home.create()
        self.home.lock()
        stack.callback(self.home.unlock)
        if self._new_database:
            self.home.make_way()
        create = self._new_database or not self.home.has_history()
        store = Store(self.home.database, self._clock, create=create)
        stack.callback(store.close)
        self.service = Service(
            store,
            self.home,
            self.cluster,
            changed=self._wake.set,
            min_free_bytes=self._min_free_bytes,
            accounts=self._accounts,
            max_grace_s=self._max_grace_s,
        )
        self.service.sends_mail = self._notices.mail is not None
        self.service.inspector = Inspector(store, self.backend)
        notifier = Notifier(store, self.home.key, self._notices)
        self.service.outbox = notifier.outbox
        stack.push_async_callback(notifier.close)
        self.service.health.policy, self.service.health.backend = self.policy, self.backend.name
        self.service.enrol = getattr(self.backend, "enrol", None)
        self.service.health.began_s = store.clock.now()
        self._write_cluster(store)
        ensure_operator_token(self.service.tokens, self.home)
        self.bookkeeper = Bookkeeper(
            store,
            self.service.health,
            self.service.metrics,
            getattr(self.backend, "pauses_cold", True),
            self.service.limits,
        )
        self._housekeeping = Housekeeping(self.service, self.bookkeeper.prunable, self._min_free_bytes)
        self.service.pace = self.bookkeeper.feed.pace
        self.bookkeeper.taken = self.home.newest_generations(store.jobs)
        stack.push_async_callback(self.backend.close)
        self._dispatcher = Dispatcher(self.backend, self._make_run, self._grace, store.clock.now)
        promotion = Promotion(store, self.policy, self._switch, self._present)
        self.policy = self.service.health.policy = promotion.load()
        self._planner_client = PlannerClient(self._make_planner, self.policy, store, self.bookkeeper, self._wake)
        self._planner_client.promotion = self.service.promotion = promotion
        self.service.shadow = self._planner_client.shadow
        self._planner_client.shadow.load()
        if self._shadow is not None and self._shadow != self._planner_client.shadow.policy:
            self._planner_client.shadow.set(self._shadow)
        self.service.ask_policy = self._planner_client.explain
        self.service.forecasts = self._planner_client.forecasts
        stack.push_async_callback(self._planner_client.close)
        stack.push_async_callback(self._dispatcher.close)
        if self._app is not None:
            app = self._app(self.service)
            total = most_connections(raise_descriptor_limit(), self._connections.total)
            limits = replace(self._connections, total=total)
            web = Web(app, self._host, self._port, limits=limits, tls=self._tls)
            self.address = web.address
            own = replace(limits, total=min(total, OWNERS_CONNECTIONS))
            local = Server(app, local_socket.listen(self.home.socket), limits=own)
            await web.start()
            stack.push_async_callback(web.stop)
            self.home.write_secret(self.home.address, web.address)  # before the socket answers those who look for us
            stack.callback(self.home.remove_own, self.home.address, web.address)
            await local.start()
            stack.push_async_callback(local.stop)
            stack.callback(self.home.remove_own, self.home.socket, identity(self.home.socket))
        await self._adopt(store)
        if serving := getattr(self.backend, "serving", None):
            serving(head_for_agents(self.service, self.address, asyncio.get_running_loop()))
        notifier.begin()
        self._preparer.prepare(None, None)
        loop = asyncio.get_running_loop()
        with suppress(ValueError, RuntimeError):  # only the main thread may handle signals
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self.stop)
                stack.callback(loop.remove_signal_handler, number)

    def _leave(self, lost: DatabaseLost) -> DatabaseLost:
        """Move away what is left of a lost database, so that nobody continues with it; return the error to raise."""
        self.service.health.fault = lost.what
        folder = self.home.make_replaced()
        saved = self.service.store.leave(lost, folder)
        kept = f"what it knew is in {saved}" if saved else f"what is left of it is in {folder}"
        hint = f"go back to it: argosy restore {saved}" if saved else "go back to a copy: argosy restore FILE"
        note("the database is lost; the daemon ends, jobs continue", logging.ERROR, why=lost.what, kept=kept)
        return DatabaseLost(f"{lost.what}; the daemon has ended, jobs continue, {kept}", hint)

    async def _switch(self, policy: str) -> None:
        """Let another policy decide."""
        self.policy = policy
        await self._planner_client.switch(policy)

    def _present(self) -> Snapshot:
        return self._planner_client.present()

    def _planner_process(self, snapshot: Callable[[], Snapshot]) -> Planner:
        return PlannerProcess(Setup(self.cluster, self.policy), snapshot)

    async def _adopt(self, store: Store) -> None:
        """Find the runs that the former daemon has left, and record what has become of them."""
        runs = [self._make_run(run) for run in store.runs.values()]
        statuses = await self.backend.adopt(runs)
        distrusted = {status.key for status in statuses if store.is_replaced and status.phase is not Phase.EXITED}
        if distrusted:  # they may have moved since the copy was made, so that their devices are unknown
            statuses = await self.backend.adopt([run for run in runs if run.key not in distrusted])
            note("runs were ended: the restored database does not know where they are", runs=len(distrusted))
        restored = Failure("it was ended: the restored database did not know where it was", final=False)
        self.bookkeeper.take_in(statuses, dict.fromkeys(distrusted, restored), adopted=True)
        if store.is_replaced:
            store.trust()
        found = sum(status.key.job in store.runs for status in statuses)
        note("adopted", runs=found, lost=len(runs) - found)

    async def _loop(self, done: Callable[[], bool], ask: bool = True) -> None:
        while not done():
            self._wake.clear()
            began = time.perf_counter()
            await self._pass(ask)
            if done():
                break
            # leave four fifths of the time to requests, even if there is always something new
            await asyncio.sleep(min(self._poll_s, 4 * (time.perf_counter() - began)))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self._pause())

    def _pause(self) -> float:
        next_s = self._planner_client.next_s
        if next_s is None:
            return self._poll_s
        return min(self._poll_s, max(0.01, next_s - self.service.store.clock.now()))

    async def _pass(self, ask: bool = True) -> None:
        """Make one pass. If something goes wrong, `health` shows it, and the next pass tries again."""
        health, store = self.service.health, self.service.store
        store.check()
        failures = self._dispatcher.take_failures()
        try:
            statuses = await asyncio.wait_for(self.backend.poll(), POLL_LIMIT_S)
            await self._look_at_nodes()
            health.backend_problem = self._dispatcher.problem
        except Exception as problem:  # whatever a backend raises must not end the daemon
            health.backend_problem = f"{self.backend.name}: {message_of(problem)}"
            self.service.metrics.errors.labels("backend").inc()
            self._dispatcher.failures = failures | self._dispatcher.failures
            return
        begin = time.perf_counter()
        try:
            self.bookkeeper.take_in(statuses, failures, self._dispatcher.under_way)
            newly_waiting, self.bookkeeper.waiting.new = self.bookkeeper.waiting.new, set()
            self._preparer.prepare_waiting(store.jobs.get(number) for number in sorted(newly_waiting))
            if ask:
                self._planner_client.step()
            calls = self.bookkeeper.act()
            self._housekeeping.step()
        except NoSpace as problem:
            if not health.disk_problem:
                note("the disk is full; nothing is lost, and the daemon continues when there is room", logging.ERROR)
            health.disk_problem = problem.what
            self.service.metrics.errors.labels("disk").inc()
            await asyncio.sleep(self._poll_s)
            return
        except DatabaseLost:
            raise
        except Exception as problem:  # a bug in the daemon; transactions keep the rows consistent
            health.fault, health.faults = f"{type(problem).__name__}: {problem}", health.faults + 1
            LOGGER.exception("a pass failed")
            self.service.metrics.errors.labels("own").inc()
            await asyncio.sleep(self._poll_s)
            return
        health.fault = ""
        self._dispatcher.send(calls, store.runs)
        health.passes += 1
        health.last_pass_s = store.clock.now()
        self.service.metrics.passes.inc()
        self.service.metrics.pass_seconds.observe(time.perf_counter() - begin)

    async def _look_at_nodes(self) -> None:
        now = self.service.store.clock.now()
        if now - self._nodes_s < NODES_EVERY_S and not self._wake.is_set():
            return
        self._nodes_s = now
        drained = self.service.drained()
        states: dict[str, NodeState] = {}
        for status in await self.backend.nodes():
            name = status.node.name
            self.service.health.nodes[name] = status
            gone = not status.up or drained.get(name, False)  # to a policy, a node that is being emptied counts as down
            states[name] = "down" if gone else "draining" if name in drained else "up"
        self.bookkeeper.feed.nodes = states

    def _make_run(self, row: RunRow) -> Run:
        job = self.service.store.jobs[row.job]
        env = {"ARGOSY_API": self.address, "ARGOSY_TOKEN": self.service.tokens.for_run(job.id, row.generation)}
        if job.array_index is not None:
            env["ARGOSY_ARRAY_INDEX"] = str(job.array_index)
        restore = tuple(found.path for found in self.service.store.checkpoints(job.id))
        spec = {**job.spec, "workdir": job.workdir, "grace": min(job.parsed.grace, self._max_grace_s)}
        folder = self.home.make_job_folder(job.id)
        return Run(row.key, row.assignment, spec, folder, restore, self._accounts.user(job.owner), env, job.hot)

    def _grace(self, run: RunRow) -> float:
        job = self.service.store.jobs.get(run.job)
        return grace_s(job, run, self._max_grace_s) if job is not None else 0.0

    def _write_cluster(self, store: Store) -> None:
        """Note what the cluster has, for those who read the database later."""
        with store.transaction() as changes:
            changes.meta(NODES, [asdict(node) for node in self.cluster.nodes])
            changes.execute("DELETE FROM queues")
            for queue in self.cluster.queues:
                values = (queue.name, queue.quota_gpus, queue.limit_gpus, queue.weight)
                changes.execute("INSERT INTO queues VALUES (?, ?, ?, ?)", values)
