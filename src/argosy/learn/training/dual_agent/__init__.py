"""Train the dual-agent scheduler: both agents at once, on whole runs of scenarios.

    train(DualAgentRecipe(), progress=print)        returns `argosy.zoo.Weights` for the policy `dual-agent`

`recipe` says what can be chosen, `runs` simulates and prices runs, `evolution`, `team_ppo` and `team_sac` are the
algorithms, `episodes` draws and notes decisions for the latter two, `networks` has the agents in torch, `loop` trains.
`fit` and `gpytorch_fit` find the hyper-parameters of the belief.
"""

from argosy.learn.training.dual_agent.fit import fit_belief, log_of
from argosy.learn.training.dual_agent.loop import train
from argosy.learn.training.dual_agent.recipe import DualAgentRecipe

__all__ = ["DualAgentRecipe", "fit_belief", "log_of", "train"]
