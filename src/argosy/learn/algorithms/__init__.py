"""Building blocks of algorithms that learn from any environment with action masks.

    masked, acting                 choosing among possible actions
    rollout, collect               stepping environments, and recording the steps
    rewards, returns, paired       rewards and advantages of steps
    ppo, sac, actor_critic, multi  learning from rewards
    clone, dagger                  learning from a teacher
    evolve                         evolution strategies: learning from scores alone
    curriculum                     training that becomes more difficult over time over time

`docs/learning-toolbox.md` shows how they fit together.
"""
