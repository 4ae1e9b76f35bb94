"""Queries about jobs that people ask for: pages of jobs, counts by state, and events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from argosy.live.states import State
from argosy.live.store import Event, Store


def page(
    store: Store,
    owner: str | None,
    states: Iterable[State] | None,
    queue: str | None,
    name: str | None,
    limit: int,
    *,
    before: int | None,
    after: int | None,
    ids: Sequence[int] | None,
    oldest_first: bool,
) -> list[int]:
    """Return the numbers of a page of jobs, newest or oldest first, with numbers before or after the given ones."""
    where, values = _conditions(owner=owner, queue=queue, name=name)
    where += store.conditions()
    if states is not None:
        wanted = sorted(states)
        where.append(f"state IN ({', '.join('?' * len(wanted))})")
        values += [state.value for state in wanted]
    if ids is not None:
        where.append("id IN (SELECT value FROM json_each(?))")
        values.append(f"[{', '.join(str(int(i)) for i in ids)}]")
    for sign, bound in (("<", before), (">", after)):
        if bound is not None:
            where.append(f"id {sign} ?")
            values.append(bound)
    order = "ASC" if oldest_first else "DESC"
    sql = f"SELECT id FROM jobs {_where(where)} ORDER BY id {order} LIMIT ?"
    return [row[0] for row in store.query(sql, (*values, limit))]


def counts(store: Store, owner: str | None) -> dict[str, int]:
    """Return how many jobs there are in each state."""
    where, values = _conditions(owner=owner)
    where += store.conditions()
    rows = store.query(f"SELECT state, count(*) FROM jobs {_where(where)} GROUP BY state", values)
    return {state.value: 0 for state in State} | dict(rows)


def events(store: Store, number: int, after: int, limit: int, newest: bool) -> list[Event]:
    """Return the events of a job, oldest first; with `newest` the last `limit` of them."""
    sql = (
        "SELECT id, job, generation, t_s, at, kind, text FROM events WHERE job = ? AND id > ?"
        f" ORDER BY id {'DESC' if newest else 'ASC'} LIMIT ?"
    )
    found = [Event(*row) for row in store.query(sql, (number, after, limit))]
    return found[::-1] if newest else found


def _conditions(**equal: str | None) -> tuple[list[str], list[Any]]:
    given = {column: value for column, value in equal.items() if value is not None}
    return [f"{column} = ?" for column in given], list(given.values())


def _where(conditions: list[str]) -> str:
    return f"WHERE {' AND '.join(conditions)}" if conditions else ""
