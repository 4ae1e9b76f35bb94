"""Learning on the job: small updates from what happened, judged in the shadow, taken back if they turn out worse."""

from argosy.learn.online.guarded import Guarded
from argosy.learn.online.history import History, read_log, split
from argosy.learn.online.shadow import Score, judge
from argosy.learn.online.tuner import OnlineTuner, Step

__all__ = ["Guarded", "History", "OnlineTuner", "Score", "Step", "judge", "read_log", "split"]
