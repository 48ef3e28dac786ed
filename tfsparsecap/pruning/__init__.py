"""Pruning methods, and how they get onto a model and off it."""

from tfsparsecap.pruning.gradual import Gradual
from tfsparsecap.pruning.lottery import LotteryTicket
from tfsparsecap.pruning.magnitude import Magnitude
from tfsparsecap.pruning.method import PruningMethod
from tfsparsecap.pruning.prune import prune, strip_pruning
from tfsparsecap.pruning.snip import SNIP
from tfsparsecap.pruning.supermask import Supermask
from tfsparsecap.pruning.supermask_loss import SupermaskLoss

__all__ = [
    "SNIP",
    "Gradual",
    "LotteryTicket",
    "Magnitude",
    "PruningMethod",
    "Supermask",
    "SupermaskLoss",
    "prune",
    "strip_pruning",
]
