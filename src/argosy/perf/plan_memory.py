"""The GPU memory that an execution plan needs.

Mixed precision with Adam: 2 bytes of weights, 2 of gradients and 12 of the optimizer's state for each parameter.
Activations are those of a transformer (Korthikanti et al., MLSys'23): for each layer and sample

    sequence · hidden · (34 + 5 · heads · sequence / hidden) bytes
    with +gc: sequence · hidden · 2 bytes, and one whole layer

times a factor that is fitted to the measured memory of four networks (`execution_plans.json` says how well it fits).
"""

from __future__ import annotations

from argosy.perf.execution_plans import ExecutionPlan, Network

GIB = 2.0**30
WEIGHT_BYTES, GRADIENT_BYTES, OPTIMIZER_BYTES = 2.0, 2.0, 12.0


def state_gib(plan: ExecutionPlan, network: Network, dp: int) -> float:
    """Return weights, gradients and optimizer's state on one GPU."""
    shared = 1.0 / dp
    if plan.kind == "zero-dp":
        each = WEIGHT_BYTES + (GRADIENT_BYTES + OPTIMIZER_BYTES) * shared
    elif plan.kind == "zero-offload":
        each = WEIGHT_BYTES + GRADIENT_BYTES
    else:
        each = WEIGHT_BYTES + GRADIENT_BYTES + OPTIMIZER_BYTES
    return each * network.parameters / plan.unit / GIB


def activation_gib(plan: ExecutionPlan, network: Network, samples: float, factor: float) -> float:
    """Return the activations of a GPU whose part of the batch has this many samples.

    With tensor or pipeline parallelism samples pass one by one; the first stage of a pipeline keeps up to `pp` of them.
    """
    layer = layer_bytes(network) / plan.tp
    layers = network.layers / plan.pp
    if plan.kind == "3d":
        samples = min(samples, plan.pp)
    kept = 2.0 * network.sequence * network.hidden * layers / plan.tp + layer if plan.recompute else layer * layers
    return factor * samples * kept / GIB


def layer_bytes(network: Network) -> float:
    """Return the activations of one layer for one sample."""
    per_token = 34.0 + 5.0 * network.heads * network.sequence / network.hidden
    return network.sequence * network.hidden * per_token
