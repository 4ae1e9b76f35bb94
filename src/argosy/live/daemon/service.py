"""The operations of the daemon that the API calls. Every call is quick and runs in the daemon's thread.

Nothing here touches a process or a policy: a change is written into the database, and the daemon's loop is woken to act
on it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from argosy.cluster.cluster import Cluster, Queue
from argosy.errors import ArgosyError, InputError
from argosy.live import sanitize
from argosy.live.daemon import history, job_queries, nodes
from argosy.live.daemon.accounts import Accounts
from argosy.live.daemon.admission import MAX_GRACE_S
from argosy.live.daemon.audit import DAEMON, Audit
from argosy.live.daemon.curves import Curves
from argosy.live.daemon.dry_run import described, estimated_facts, variants
from argosy.live.daemon.forecasts import Forecasts, calibration, shown
from argosy.live.daemon.health import DaemonHealth
from argosy.live.daemon.inspector import Inspector
from argosy.live.daemon.job_control import JobControl
from argosy.live.daemon.metrics import Metrics
from argosy.live.daemon.pending_reason import explanation, one_line
from argosy.live.daemon.promotion import Promotion
from argosy.live.daemon.reconcile import HURRY_S
from argosy.live.daemon.shadow import Shadow
from argosy.live.daemon.submissions import MIN_FREE_BYTES, Batch, Submissions
from argosy.live.daemon.tokens import Tokens
from argosy.live.daemon.user_limits import LimitBook, LimitRow
from argosy.live.daemon.views import JobView, NodeView, job_view
from argosy.live.errors import Conflict, NotFound
from argosy.live.home import Home
from argosy.live.notices.outbox import Notice, Outbox, secret_of
from argosy.live.spec import JobSpec
from argosy.live.states import State, Stop
from argosy.live.store import Actor, Event, Job, RunRow, Store, Token, database

MAX_REPORT = 16_000  # characters of a report
CANCELLING = {
    Stop.CANCELLED: "to be cancelled: asked to save its work and leave",
    Stop.HURRIED: f"cancelled again: it is killed if it has not left within {HURRY_S:g} s",
    Stop.KILLED: "cancelled at once: it is killed",
}


class Service:
    """The operations behind the API. `changed` is called after every change that the loop should know about."""

    def __init__(
        self,
        store: Store,
        home: Home,
        cluster: Cluster,
        health: DaemonHealth | None = None,
        metrics: Metrics | None = None,
        changed: Callable[[], None] = lambda: None,
        min_free_bytes: int = MIN_FREE_BYTES,
        accounts: Accounts | None = None,
        max_grace_s: float = MAX_GRACE_S,
    ) -> None:
        self.store, self.home, self.cluster, self.changed = store, home, cluster, changed
        self.accounts, self.audit = accounts or Accounts(), Audit(store)
        self.health = health or DaemonHealth()
        self.metrics = metrics or Metrics()
        self.limits = LimitBook(store, cluster)
        self._submissions = Submissions(
            store, cluster, self.health, self.metrics, self._tell, min_free_bytes, self.limits, max_grace_s
        )
        self.tokens, self.control = Tokens(store, home.key()), JobControl(self)
        self.pace: Callable[[int], float | None] = lambda job: None  # the share of its work that a job does in a second
        self.curves = Curves(store)
        self.outbox: Outbox | None = None  # notices to users
        self.inspector: Inspector | None = None  # looks into running jobs
        self.sends_mail = True  # whether there is a mail server; if not, jobs that want mail are refused
        self.enrol: Callable[[str, Mapping[str, Any], str], Any] | None = None  # takes in the agent of a node
        self.forecasts: Forecasts | None = None
        self.shadow: Shadow | None = None
        self.promotion: Promotion | None = None
        self.ask_policy: Callable[[Sequence[int]], Awaitable[None]] | None = None  # fills `DaemonHealth.waiting`

    # jobs

    def submit(
        self, specs: Sequence[JobSpec], owner: str, workdir: str | Path | None = None, by: Actor | None = None
    ) -> list[int]:
        """Accept jobs, all or none; return their numbers, which are consecutive within an array."""
        return self._submissions.now([self._batch(specs, owner, workdir, by)])[0]

    async def take_in(
        self, specs: Sequence[JobSpec], owner: str, workdir: str | Path | None = None, by: Actor | None = None
    ) -> list[int]:
        """Accept jobs of concurrent callers; those submitted at the same time are written in one transaction."""
        return await self._submissions.soon(self._batch(specs, owner, workdir, by))

    def submit_for(self, specs: Mapping[str, Sequence[JobSpec]], by: Actor) -> list[int]:
        """Accept jobs of several owners, all or none; return their numbers, in the order of the owners."""
        batches = [self._batch(theirs, owner, None, by) for owner, theirs in specs.items()]
        return [number for numbers in self._submissions.now(batches) for number in numbers]

    def _batch(self, specs: Sequence[JobSpec], owner: str, workdir: str | Path | None, by: Actor | None) -> Batch:
        self.accounts.check(owner)
        if not self.sends_mail and any(spec.notify is not None and spec.notify.mail for spec in specs):
            hint = "leave it out, use webhook:, or ask the operator to start the daemon with --smtp"
            raise InputError("notify.mail: this daemon sends no mail", hint=hint)
        return Batch(specs, owner, str(workdir or self.accounts.folder(owner)), by or Actor(owner, "user"))

    def job(self, number: int) -> JobView:
        return self._view(self._job(number))

    def jobs(
        self,
        owner: str | None = None,
        states: Iterable[State] | None = None,
        queue: str | None = None,
        name: str | None = None,
        limit: int = 100,
        before: int | None = None,
        ids: Sequence[int] | None = None,
        after: int | None = None,
        oldest_first: bool = False,
    ) -> list[JobView]:
        """Return a page of jobs, newest or oldest first, with numbers before or after the given ones."""
        numbers = job_queries.page(
            self.store,
            owner,
            states,
            queue,
            name,
            limit,
            before=before,
            after=after,
            ids=ids,
            oldest_first=oldest_first,
        )
        found = self.store.some_jobs(numbers)
        return [self._view(found[number]) for number in numbers]

    def counts(self, owner: str | None = None) -> dict[str, int]:
        """Return how many jobs there are in each state."""
        return job_queries.counts(self.store, owner)

    def cancel(self, numbers: Sequence[int], by: Actor = DAEMON, *, at_once: bool = False) -> list[JobView]:
        """Cancel these jobs. Those that have ended stay as they are; one that runs saves its work and stops.

        A job that is cancelled a second time gets a few seconds, and with `at_once` none.
        """
        now, wall = self.store.clock.now(), self.store.clock.wall()
        with self.store.transaction() as changes:
            changes.audit(by, "cancel", jobs=numbers)
            for number in numbers:
                job = changes.job(number) or self._job(number)
                if job.state is State.PENDING:
                    changes.save(replace(job, state=State.CANCELLED, ended_s=now, ended_at=wall, message="cancelled"))
                    changes.event(job, "cancelled", "cancelled while it waited")
                elif not job.state.ended:
                    run = changes.run(number)
                    assert run is not None
                    again = run.stop is not None and run.stop.cancels
                    stop = Stop.KILLED if at_once else Stop.HURRIED if again else Stop.CANCELLED
                    if stop.overrules(run.stop):
                        changes.save(replace(job, state=State.STOPPING))
                        changes.save_run(replace(run, stop=stop))
                        changes.event(job, "cancelling", CANCELLING[stop])
        self.changed()
        return [self.job(number) for number in numbers]

    def set_priority(self, number: int, priority: float, by: Actor = DAEMON) -> JobView:
        self.control.set_priority([number], priority, by)
        return self.job(number)

    def events(self, number: int, after: int = 0, limit: int = 1000, newest: bool = False) -> list[Event]:
        """Return the events of a job, oldest first; with `newest` the last `limit` of them."""
        self._job(number)
        return job_queries.events(self.store, number, after, limit, newest)

    def runs(self, number: int) -> list[RunRow]:
        self._job(number)
        return self.store.all_runs(number)

    def explain(self, number: int) -> dict[str, Any]:
        """Explain why a job waits or runs: state, category, text, evidence, and the change that would start it."""
        job = self._job(number)
        return explanation(job, self.store, self.health) | {"eta": self._eta(job)}

    def eta(self, number: int) -> dict[str, Any]:
        """Return when a job is expected to start and to end, and what the estimate is based on."""
        job = self._job(number)
        made = self.forecasts.latest if self.forecasts is not None else None
        known = {"policy": made.policy, "rollouts": made.rollouts} if made is not None else {}
        problem = self.forecasts.problem if self.forecasts is not None else "this daemon makes no estimates"
        return {"job": number, "state": job.state.value, "eta": self._eta(job), "problem": problem, **known}

    def calibration(self) -> dict[str, Any]:
        """Return how good past estimates were; may be called from another thread."""
        return calibration(self.store.path)

    async def dry_run(self, spec: JobSpec, owner: str) -> dict[str, Any]:
        """Return when a job would start and end if it were submitted now, and the same for cheaper variants of it."""
        self.accounts.check(owner)
        self._submissions.check(self._batch([spec], owner, None, None))
        if self.forecasts is None:
            raise Conflict("this daemon makes no estimates", hint="submit the job without --dry-run")
        asked = variants(spec, self.cluster)
        facts = [estimated_facts(one.spec, owner, self.store) for one in asked]
        found = await self.forecasts.what_if(facts)
        to_unix_s, now = self.store.clock.wall() - self.store.clock.now(), self.store.clock.now()
        return {"variants": [described(one, what, now, to_unix_s) for one, what in zip(asked, found)]}

    async def explain_now(self, number: int) -> dict[str, Any]:
        """Explain a job after asking the policy for its reason."""
        if self._job(number).state is State.PENDING and self.ask_policy is not None:
            with suppress(ArgosyError):  # a failing planner is part of the explanation itself
                await self.ask_policy([number])
        return self.explain(number)

    def report(self, number: int, generation: int, payload: Mapping[str, Any]) -> None:
        """Accept a run's report about itself; it is refused if the run has ended."""
        job, run = self.store.jobs.get(number), self.store.runs.get(number)
        if job is None or run is None or run.generation != generation:
            raise Conflict(f"generation {generation} of job {number} has ended", hint="its report was not accepted")
        if len(repr(payload)) > MAX_REPORT:
            raise InputError(f"a report has at most {MAX_REPORT} characters", hint="report numbers, not tensors")
        self.store.reports[number] = {**self.store.reports.get(number, job.report), **sanitize.report(payload)}

    def log_path(self, number: int, generation: int | None = None) -> Path:
        """Return the path of a run's log; by default of the newest run."""
        job = self._job(number)
        wanted = job.generation if generation is None else generation
        if not 1 <= wanted <= job.generation:
            raise NotFound(f"job {number} has no run {wanted}", hint=f"it has had {job.generation} runs")
        return self.home.log(number, wanted)

    # the cluster

    def nodes(self) -> list[NodeView]:
        return nodes.views(self.store, self.cluster, self.health)

    def drain(self, name: str, by: Actor = DAEMON, emptied: bool = False) -> None:
        """Let no more jobs start on a node; those that run there continue or, with `emptied`, have to leave at once."""
        nodes.set_drained(self.store, self.cluster, name, by, True, emptied)
        self.changed()

    def undrain(self, name: str, by: Actor = DAEMON) -> None:
        nodes.set_drained(self.store, self.cluster, name, by, False)
        self.changed()

    def drained(self) -> dict[str, bool]:
        """Return the nodes on which nothing may start, and whether what runs there has to leave."""
        return nodes.drained(self.store)

    def queues(self) -> list[Queue]:
        return list(self.cluster.queues)

    def set_limits(self, owner: str, given: Mapping[str, Any], by: Actor = DAEMON) -> LimitRow:
        """Set limits of a user; running jobs continue, but no job starts beyond the limits."""
        row = self.limits.set(owner, given, by)
        self.changed()
        return row

    def clear_limits(self, owner: str, by: Actor = DAEMON) -> None:
        """Remove the limits set for a user, so that those of the cluster file apply again."""
        self.limits.clear(owner, by)
        self.changed()

    # tokens: see argosy.live.daemon.tokens

    def rotate_token(self, number: int, keep_old_s: float = 0.0, by: Actor = DAEMON) -> tuple[Token, str]:
        """Replace a token by a new secret, also in the home's `token` file if it is that token."""
        local = self.home.token.exists() and self.tokens.is_secret_of(number, self.home.token.read_text().strip())
        token, secret = self.tokens.rotate(number, keep_old_s, by)
        if local:
            self.home.write_secret(self.home.token, secret)
        return token, secret

    # notices

    def notices(self, owner: str | None, limit: int = 100) -> list[Notice]:
        """Return the newest notices, sent or not, of one user or of all."""
        return [] if self.outbox is None else self.outbox.recent(owner, limit)

    def notice_secret(self, owner: str) -> str:
        """Return the secret with which notices to a user's web addresses are signed."""
        return secret_of(self.home.key(), owner)

    # history, health and backups

    def history(self, owner: str | None = None, limit: int = 100, before: int | None = None) -> list[dict[str, Any]]:
        """Return jobs that have ended, the latest first: completion times, waits, GPU-seconds, preemptions, resizes.

        `before` is the number of a job: only jobs that ended before it are returned.
        """
        found = self.store.some_jobs(numbers := history.page(self.store, owner, limit, before))
        return [history.entry(self._view(found[number])) for number in numbers]

    def history_csv(self, owner: str | None = None) -> str:
        """Return jobs that have ended as a trace for `argosy simulate`; may be called from another thread."""
        return history.trace_csv(self.store.path, owner)

    def overheads_csv(self, owner: str | None = None) -> str:
        """Return what starts, stops, moves and resizes took here, for `argosy simulate --overheads`."""
        return history.overheads_csv(self.store, owner)

    def health_summary(self) -> dict[str, Any]:
        """Return whether all is well and, if not, what is wrong."""
        now, s = self.store.clock.now(), self.health
        problems = [*s.problems(now), *self.store.problems()]
        return {
            "ok": not problems,
            "problems": problems,
            "policy": s.policy,
            "notice": self.promotion.notice() if self.promotion is not None else "",
            "backend": s.backend,
            "passes": s.passes,
            "last_pass_age_s": None if s.last_pass_s is None else round(now - s.last_pass_s, 3),
            "last_decision_age_s": None if s.decided_s is None else round(now - s.decided_s, 3),
            "uptime_clock_s": round(now, 3),
        }

    def metrics_text(self) -> bytes:
        promoted = self.promotion.now if self.promotion is not None else None
        phase = "" if promoted is None else promoted.phase
        self.metrics.observe(self.counts(), self.nodes(), self.health_summary()["ok"], phase)
        return self.metrics.text()

    def backup(self, target: Path) -> None:
        """Copy the database, through a connection of its own, so that another thread may call this."""
        database.backup(self.store.path, target)

    def _job(self, number: int) -> Job:
        job = self.store.job(number) if 0 < number < 2**62 else None
        if job is None:
            raise NotFound(f"there is no job {number}", hint="see argosy queue -a for the numbers")
        return job

    def _view(self, job: Job) -> JobView:
        now = self.store.clock.now()
        why = "" if job.state.ended else one_line(job, self.store, self.health)
        said = self.store.reports.get(job.id, job.report)
        return job_view(job, self.store.runs.get(job.id), said, why, now, self._eta(job))

    def _eta(self, job: Job) -> dict[str, Any] | None:
        """Return when a job is expected to start and to end, from the latest forecast."""
        made = self.forecasts.latest if self.forecasts is not None else None
        found = made.jobs.get(job.id) if made is not None and not job.state.ended else None
        if made is None or found is None:
            return None
        return shown(found, made.at_s, self.store.clock.wall() - self.store.clock.now())

    def _tell(self) -> None:
        self.changed()
