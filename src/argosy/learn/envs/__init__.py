"""The simulator as a learner meets it: a Gymnasium environment, and PettingZoo environments for two agents.

    import gymnasium, argosy
    env = gymnasium.make("argosy/Cluster-v0", scenario="dl2-500")

They are around the same engine as `argosy simulate`: a policy that is followed here action by action ends every job at
the same second.
"""
