"""Let the kernels rank the jobs of a whole run, if the policy's rank is a declared column or compiled code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from argosy.errors import PolicyError
from argosy.mechanism.kernels import layout as L

if TYPE_CHECKING:
    from argosy.policies.base import CompiledOrder
    from argosy.sim.engine import Engine


def rank_in_kernels(engine: Engine) -> bool:
    """Tell the kernels how to rank, if they can; return whether they do."""
    policy, si = engine.policy, engine.world.si
    if engine.is_keyed:
        policy.rank(engine.view)  # raises an error if it reads a column that it does not declare
        si[L.KEY_ROW] = L.COLUMNS_F[policy.key]
        si[L.KEY_FACTOR] = L.COLUMNS_F[policy.key_factor] if policy.key_factor else -1
        return True
    order = policy.compiled_order(len(engine.trace)) if engine.may_compile else None
    if order is not None:
        use_order(engine, order)
    return order is not None


def is_ranked_in_kernels(w: L.World) -> bool:
    return bool(w.si[L.KEY_ROW] >= 0 or w.si[L.ORDER_FN])


def use_order(engine: Engine, order: CompiledOrder) -> None:
    """Let the kernels call this order instead of asking the policy."""
    from argosy._by_address import address_of  # imported late, because it imports Numba

    si, names = engine.world.si, order.columns
    if len(names) > L.MOST_ORDER_READS:
        raise PolicyError(f"policy {engine.policy.name!r}: a compiled order reads at most {L.MOST_ORDER_READS} columns")
    for i, name in enumerate(names):
        getattr(engine.view.jobs, name)  # raises an error if the policy does not declare this information
        si[L.ORDER_READS + i] = L.COLUMNS_F[name] if name in L.COLUMNS_F else -1 - L.COLUMNS_I[name]
    engine.order = order
    si[L.ORDER_READS_N] = len(names)
    si[L.ORDER_MEMORY], si[L.ORDER_MEMORY_N] = order.memory.ctypes.data, len(order.memory)
    si[L.ORDER_FN] = address_of(order.function)
