"""Grow networks while they train: deeper or wider when there are spare GPUs, and small again when they are taken back.

sites, deepen, widen, shrink      surgery on any torch.nn.Module
Trainer and its schedulers        training that grows and shrinks as GPUs come and go
Table, agents                     learning how to grow, and judging decisions
"""

from __future__ import annotations

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError:
    from argosy.errors import InputError

    raise InputError("growing networks needs PyTorch", hint="pip install 'argosy[grow]'") from None

from argosy.grow import models
from argosy.grow.agents.base import Agent, Answer, Situation
from argosy.grow.agents.baselines import FixedSequence, Nothing, RandomGrowth
from argosy.grow.agents.forecasting_agent import ForecastingAgent
from argosy.grow.agents.planning_agent import PlanningAgent
from argosy.grow.agents.q import QAgent
from argosy.grow.agents.reference import ReferenceAgent
from argosy.grow.agents.search import Search
from argosy.grow.data import Data, load
from argosy.grow.errors import Diverged, GrowError, NoSuchSite, NotTraceable
from argosy.grow.surgery.apply import apply, rebuild
from argosy.grow.surgery.deepen import deepen
from argosy.grow.surgery.history import surgeries_of
from argosy.grow.surgery.optimizer import carry
from argosy.grow.surgery.record import Surgery
from argosy.grow.surgery.sites import Site, Sites, sites
from argosy.grow.surgery.trace import Block
from argosy.grow.surgery.unfreeze import unfreeze
from argosy.grow.surgery.widen import widen
from argosy.grow.tables.growth_table import Table
from argosy.grow.tables.make import make as make_table
from argosy.grow.training.clock import RealClock, VirtualClock
from argosy.grow.training.distill import Distillation, shrink
from argosy.grow.training.feed import Loaders
from argosy.grow.training.guard import Guard
from argosy.grow.training.journal import Decision, History
from argosy.grow.training.recipe import Recipe
from argosy.grow.training.run import Run
from argosy.grow.training.schedulers import LiveScheduler, Scheduler, SimulatedScheduler, TimedScheduler
from argosy.grow.training.trainer import Trainer

__all__ = [
    "Agent",
    "Answer",
    "Block",
    "Data",
    "Decision",
    "Distillation",
    "Diverged",
    "FixedSequence",
    "ForecastingAgent",
    "GrowError",
    "Guard",
    "History",
    "LiveScheduler",
    "Loaders",
    "NoSuchSite",
    "NotTraceable",
    "Nothing",
    "PlanningAgent",
    "QAgent",
    "RandomGrowth",
    "RealClock",
    "Recipe",
    "ReferenceAgent",
    "Run",
    "Scheduler",
    "Search",
    "SimulatedScheduler",
    "Site",
    "Sites",
    "Situation",
    "Surgery",
    "Table",
    "TimedScheduler",
    "Trainer",
    "VirtualClock",
    "apply",
    "carry",
    "deepen",
    "load",
    "make_table",
    "models",
    "rebuild",
    "shrink",
    "sites",
    "surgeries_of",
    "unfreeze",
    "widen",
]
