"""Says which features moved the score by which dl2 or dl2+ grants a job its first worker or server."""

from __future__ import annotations

import numpy as np

from argosy.policies.base import Floats
from argosy.policies.common.influences import Feature, in_words, number, seconds
from argosy.policies.learned.features import COLUMNS, CONTEXT, LEFT, RAN, SINCE, JobFeatures, Matrix
from argosy.policies.learned.kernels.constants import KINDS, SLOTS_PER_UNIT
from argosy.policies.learned.networks import ScoreNetwork, TableNetwork


def why_scored(network: TableNetwork | ScoreNetwork, features: JobFeatures, row: int, slot_s: float) -> str:
    """Return in words what moved the score of one job at the beginning of the last time slot."""
    table = isinstance(network, TableNetwork)
    first = row - row % network.rows if isinstance(network, TableNetwork) else 0  # of its table
    here = slice(first, first + network.rows if isinstance(network, TableNetwork) else len(features.types))
    present, types = len(features.types[here]), len(network.types)
    rows = network.rows if isinstance(network, TableNetwork) else present
    seen = np.zeros((rows, types + COLUMNS + (0 if table else CONTEXT)), np.float32)
    features.write(seen, types, here)
    own = row - first
    groups = [np.arange(types), *(np.array([types + column]) for column in _columns(table))]
    scores = [_score(network, seen, own)]
    mean = seen[:present].mean(axis=0)
    for columns in groups:
        changed = seen.copy()
        changed[own, columns] = mean[columns]
        scores.append(_score(network, changed, own))
    moved = scores[0] - np.array(scores[1:])
    kind = int(features.types[row])
    unit_s = SLOTS_PER_UNIT * slot_s
    times = {RAN: "time it has run", LEFT: "work left", SINCE: "time since its arrival"}
    words = [Feature("its model", lambda x: network.types[kind] if kind >= 0 and x == 1.0 else _mixed(x))]
    words += [Feature(times[column], seconds, lambda x: x * unit_s) for column in _columns(table)]
    values = np.array([1.0, *(float(seen[own, c[0]]) for c in groups[1:])])
    means = np.array([0.0, *(float(mean[c[0]]) for c in groups[1:])])
    return in_words(words, moved, values, means, present)


def _columns(table: bool) -> tuple[int, ...]:
    return (RAN, LEFT) if table else (RAN, LEFT, SINCE)


def _mixed(x: float) -> str:
    return "unknown" if x == 1.0 else "of all" if x == 0.0 else number(x)


def _score(network: TableNetwork | ScoreNetwork, seen: Matrix, row: int) -> float:
    """Return the best score of the job's first grants; for dl2, the logarithm of the best one's probability."""
    logits: Floats = network.logits(seen).astype(np.float64)
    own = logits[KINDS * row : KINDS * (row + 1)]
    if isinstance(network, ScoreNetwork):
        return float(own.max())
    most = float(logits.max())
    return float(own.max()) - most - float(np.log(np.exp(logits - most).sum()))
