"""Execution plans: the ways to train one large model on some GPUs, and how long a step takes with each.

A plan says how the work is divided: `dp` (data parallelism, every GPU has a copy), `zero-dp` (the copies share the
optimizer's state and the gradients), `zero-offload` (the optimizer runs on the CPUs), or `tp4+pp2` (tensor and pipeline
parallelism; what is left over is data parallelism). `+gc` recomputes activations in the backward pass. The global batch
is fixed, so every plan trains the same model; a batch that does not fit is accumulated over several passes.

The times are those of Rubick (MLSys'25, artifact AlibabaPAI/reconfigurable-dl-scheduler), in milliseconds; P is the
parameters and S sequence × hidden, both over 2^20, F the forward pass of a GPU, B = k_bwd · F:

    dp, zero:  a_f·F + (a_b − 1)·B + sync + opt + k_swap + off + k_const        a = passes; +gc: a_f is twice as much
               sync = (C^k + B^k)^(1/k) (+ k_off + off)   C = 8·P·(g − 1)/g / bandwidth   k = k_sync
               opt = k_opt·P (dp), k_opt·P/g (zero-dp), k_os·P/(g·threads) (offload)     off = 4·P/g / PCIe
    tp+pp:     F + (C_dp^k + B^k)^(1/k) + k_opt·P/(tp·pp) + k_const + C_tp + C_pp
               C_tp = 32·S·(tp − 1)/tp·mb·layers / NVLink     C_pp = 16·mb·S/tp·pp / network     mb = batch/dp
               C_dp = 8·(dp − 1)/dp·P/(tp·pp) / NVLink or network

Differences from Rubick: F of a plan follows from the forward pass of the whole batch on one GPU instead of being
measured for each plan; the bandwidth between nodes grows with the GPUs of a job on each node, a network card for two,
as the measurements show, and is shared by the rings of copies that cross them; `+gc` with tp or pp repeats the forward
pass there, too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from argosy.errors import InputError

THREADS = 8  # CPU threads of each GPU's process, for the optimizer of zero-offload
DEGREES = (1, 2, 4, 8)  # of tensor and pipeline parallelism, among the plans that `any` stands for
MOST_DEGREE = 64
NAME = re.compile(
    r"(dp|zero-dp|zero-offload|tp(?P<tp>\d{1,2})(?:\+pp(?P<pp>\d{1,2}))?|pp(?P<only_pp>\d{1,2}))(?P<gc>\+gc)?"
)
HINT = "write dp, zero-dp, zero-offload, tp4, pp2 or tp4+pp2, each also with +gc, such as zero-dp+gc"


@dataclass(frozen=True, slots=True)
class ExecutionPlan:
    """One way to divide the training of a model over GPUs; the degree of data parallelism follows from their number."""

    kind: str  # dp | zero-dp | zero-offload | 3d
    tp: int = 1
    pp: int = 1
    recompute: bool = False

    @property
    def name(self) -> str:
        parts = [f"tp{self.tp}"] * (self.tp > 1) + [f"pp{self.pp}"] * (self.pp > 1)
        return "+".join((parts if self.kind == "3d" else [self.kind]) + ["gc"] * self.recompute)

    @property
    def unit(self) -> int:
        """The GPUs that hold one copy of the model."""
        return self.tp * self.pp


@cache
def read_plan(text: str) -> ExecutionPlan:
    """Return the plan with this name; `gc` and `ga` alone are `dp+gc` and `dp`, as in Rubick's traces."""
    name = {"gc": "dp+gc", "ga": "dp"}.get(text.strip().lower(), text.strip().lower())
    found = NAME.fullmatch(name)
    if found is None:
        raise InputError(f"there is no execution plan {text!r}", hint=HINT)
    recompute, kind = found["gc"] is not None, found[1]
    if kind in ("dp", "zero-dp", "zero-offload"):
        return ExecutionPlan(kind, recompute=recompute)
    tp, pp = int(found["tp"] or 1), int(found["pp"] or found["only_pp"] or 1)
    if not (1 <= tp <= MOST_DEGREE and 1 <= pp <= MOST_DEGREE) or tp * pp == 1:
        raise InputError(f"execution plan {text!r}: tp and pp must be 1..{MOST_DEGREE}, and one of them above 1")
    return ExecutionPlan("3d", tp, pp, recompute)


@cache
def every_plan() -> tuple[ExecutionPlan, ...]:
    """Return the plans that `any` stands for: what is usual, without looking whether it fits."""
    data = [ExecutionPlan(kind) for kind in ("dp", "zero-dp", "zero-offload")]
    model = [ExecutionPlan("3d", tp, pp) for tp in DEGREES for pp in DEGREES if tp * pp > 1]
    return tuple(ExecutionPlan(plan.kind, plan.tp, plan.pp, gc) for plan in (*data, *model) for gc in (False, True))


@dataclass(frozen=True, slots=True)
class Network:
    """Facts about a model whose plans can be chosen."""

    parameters: float
    layers: int
    hidden: int
    heads: int
    sequence: int
    batch: float  # global

    @property
    def p(self) -> float:
        return self.parameters / 2**20


@dataclass(frozen=True, slots=True)
class Constants:
    """The fitted constants of a model on one GPU type, in milliseconds."""

    forward: float  # forward pass of the whole batch on one GPU
    k_bwd: float
    k_sync: float
    k_opt: float
    k_os: float
    k_const: float
    k_off: float = 0.0
    k_swap: float = 0.0
    tp_power: float = 1.0  # a forward pass on tp GPUs takes 1/tp^power of the time
    micro: float = 1.0  # samples of a pipeline's micro-batch
    k_3d: float = 1.0  # a forward pass with tensor or pipeline parallelism, relative to one without


@dataclass(frozen=True, slots=True)
class Wires:
    """Bandwidths in MiB per millisecond."""

    nvlink: float
    pcie: float
    network: float  # of a pair of GPUs that share a network card
    pairs: bool = True  # whether each pair of GPUs on a node has a card of its own


def network_bandwidth(wires: Wires, share: int) -> float:
    """Return the bandwidth between nodes on each of which a job has this many GPUs."""
    return wires.network * (-(-share // 2) if wires.pairs else 1)


def ring_bandwidth(wires: Wires, share: int, tp: int, dp: int) -> float:
    """Return the bandwidth of one ring of copies that crosses nodes: the rings of a node share its network cards."""
    rings = share / max(min(dp, share // tp), 1)
    return network_bandwidth(wires, share) / rings if wires.pairs else wires.network


def data_parallel_ms(
    plan: ExecutionPlan,
    network: Network,
    c: Constants,
    wires: Wires,
    gpus: int,
    share: int,
    *,
    passes: int = 1,
    threads: float = THREADS,
) -> float:
    """Return the time of a step of `dp`, `zero-dp` or `zero-offload`; `share` GPUs are on each node."""
    f = c.forward / gpus / passes
    b, p = c.k_bwd * f, network.p
    bandwidth = wires.nvlink if share >= gpus else network_bandwidth(wires, share)
    sync = joined(8 * p * (gpus - 1) / gpus / bandwidth, b, c.k_sync)
    off = 0.0
    if plan.kind == "zero-offload":
        off = 4 * p / gpus / wires.pcie
        sync += c.k_off + off
        opt = c.k_os * p / (gpus * threads)
    else:
        opt = c.k_opt * p / (gpus if plan.kind == "zero-dp" else 1)
    forward = passes * f * (2 if plan.recompute else 1)
    return forward + (passes - 1) * b + sync + opt + c.k_swap + off + c.k_const


def model_parallel_ms(
    plan: ExecutionPlan, network: Network, c: Constants, wires: Wires, forward: float, dp: int, nodes: int, share: int
) -> float:
    """Return the time of a step with tensor and pipeline parallelism; `forward` is the forward pass of a GPU."""
    tp, pp, mb = plan.tp, plan.pp, network.batch / dp
    s = network.sequence * network.hidden / 2**20
    across = tp > share or share % tp > 0  # tensor parallelism crosses nodes, which is slow
    c_tp = 32 * s * (tp - 1) / tp * mb * network.layers / (wires.network if across else wires.nvlink)
    together = nodes == 1
    c_pp = 0.0 if pp == 1 else 16 * mb * s / tp * pp / (wires.nvlink if together else wires.network)
    inside = together or tp * dp <= share
    volume = 8 * (dp - 1) / dp * network.p / (tp * pp)
    c_dp = volume / (wires.nvlink if inside else ring_bandwidth(wires, share, tp, dp))
    opt = c.k_opt * network.p / (tp * pp)
    once_more = forward if plan.recompute else 0.0
    return once_more + forward + joined(c_dp, c.k_bwd * forward, c.k_sync) + opt + c.k_const + c_tp + c_pp


def forward_ms(plan: ExecutionPlan, network: Network, c: Constants, dp: int) -> float:
    """Return the forward pass of a GPU: its part of the batch and of the model, with the pipeline's bubble."""
    micro_batches = max(network.batch / dp / c.micro, 1.0)
    bubble = (micro_batches + plan.pp - 1) / micro_batches
    return float(c.k_3d * c.forward / dp / plan.tp**c.tp_power / plan.pp * bubble)


def joined(communication: float, backward: float, power: float) -> float:
    """Return the time of two things that overlap: their sum for power 1, the longer one for a large power."""
    longer, shorter = max(communication, backward), min(communication, backward)
    return float(longer * (1 + (shorter / longer) ** power) ** (1 / power)) if longer > 0 else 0.0
