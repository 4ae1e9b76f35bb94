"""Building blocks of algorithms that learn from any environment with masks.

    masked, acting                 choosing among possible actions
    rollout, collect               stepping environments, and the steps that were taken
    rewards, returns, paired       rewards and advantages of steps
    ppo, sac, actor_critic, multi  learning from rewards
    clone, dagger                  learning from a teacher
    evolve                         learning from scores alone
    curriculum                     training that becomes more difficult

`docs/learning-toolbox.md` shows how they fit together.
"""
