"""Lyra, also known as Aryl: elastic training on servers that an inference cluster lends (Li et al., EuroSys'23).

`reclaim` chooses the servers that go back, `knapsack` which elastic jobs get extra workers, `policy` does the rest.
"""

from argosy.policies.lyra import policy

__all__ = ["policy"]
