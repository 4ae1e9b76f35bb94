"""Train a sizer by a recipe: it imitates a teacher, and then learns by reinforcement.

Training reports its progress, validates the weights, and can be interrupted and resumed.

recipe, options, cases, student      what is trained, and on which jobs
workers                              processes of this machine, or Ray
score, validation                    how good it is
demonstrations, collection_tasks     steps to learn from
imitation_stage                      learning from a teacher
evolution_stage, dl2_stage, episode_stages, endless_env, exploration    learning by reinforcement
train, session, stage, stop, checkpoint, progress, page, verify         running, saving and reporting
"""

from argosy.learn.training.recipe import Recipe

__all__ = ["Recipe"]
