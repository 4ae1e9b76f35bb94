"""Algorithms that learn from any environment with masks, as building blocks.

    masked, acting                 choosing among possible actions
    rollout, collect               stepping environments, and what it brings
    rewards, returns, paired       what steps are worth
    ppo, sac, actor_critic, multi  learning from rewards
    clone, dagger                  learning from a teacher
    evolve                         learning from scores alone
    curriculum                     from easy to hard

`docs/learning-toolbox.md` shows how they fit together.
"""
