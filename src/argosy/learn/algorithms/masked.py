"""Choose among possible actions: softmax, entropy, sampling and the best action, all under a mask.

Acting and learning mask in the same way: the logit of an impossible action becomes -1e9. Its probability is then
exactly 0, its logit receives no gradient, and the entropy counts only possible actions.
"""

from __future__ import annotations

import torch

from argosy.errors import InputError
from argosy.learn.errors import TrainingError

MASKED = -1e9


def mask_logits(logits: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the logits, with -1e9 for impossible actions."""
    if mask.shape != logits.shape:
        raise InputError(
            f"the mask has the shape {tuple(mask.shape)}, but the logits have {tuple(logits.shape)}",
            hint="the network must have one output for each action of the environment",
        )
    return logits.masked_fill(~mask, MASKED)


def check_masks(mask: torch.Tensor) -> None:
    """Raise an error if a mask leaves no action."""
    empty = ~mask.any(dim=-1)
    if bool(empty.any()):
        raise InputError(
            f"no action is possible in {int(empty.sum())} of {empty.numel()} states",
            hint="a mask must leave at least one action",
        )


def check_logits(logits: torch.Tensor) -> None:
    """Raise an error if logits are not finite, which happens when the weights have diverged."""
    if not bool(torch.isfinite(logits).all()):
        raise TrainingError("the network's logits are not finite", hint="check its weights and the observations")


def log_probabilities(logits: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the log-probability of every action; about -1e9 where it is impossible."""
    return mask_logits(logits, mask).log_softmax(dim=-1)


def entropy(logits: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the entropy of the distribution over the possible actions, in nats."""
    logs = log_probabilities(logits, mask)
    return -(logs.exp() * logs).sum(dim=-1)


def sample(logits: torch.Tensor, mask: torch.Tensor, generator: torch.Generator | None = None) -> torch.Tensor:
    """Draw one possible action for each row."""
    chances = log_probabilities(logits, mask).exp()
    return torch.multinomial(chances, 1, generator=generator).squeeze(-1)


def best(logits: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the possible action with the largest logit in each row; the first of equals."""
    return mask_logits(logits, mask).argmax(dim=-1)
