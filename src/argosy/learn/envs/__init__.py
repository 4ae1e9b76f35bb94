"""The simulator as environments for learners: one of Gymnasium, and two of PettingZoo for two agents.

    import gymnasium, argosy
    env = gymnasium.make("argosy/Cluster-v0", scenario="dl2-500")

They use the same engine as `argosy simulate`: following a policy here, action by action, ends every job at the same
second as simulating it.
"""
