"""Training a sizer from a recipe: imitate a teacher, then reinforce; watched, judged, interrupted and resumed.

recipe, ground, pupil    what is trained, on which jobs
workers                  processes, or Ray
score, judge             how good it is
lessons, imitation       learning from a teacher
evolution, reinforcement, explore    learning from what comes of it
train, checkpoint, watch, verify     the run itself
"""

from argosy.learn.training.recipe import Recipe

__all__ = ["Recipe"]
