"""Pruning methods, and functions that add them to a model and remove them."""

from tfsparsecap.pruning.apply import fix_zeros, prune, strip_pruning
from tfsparsecap.pruning.fixed_mask import FrozenMask
from tfsparsecap.pruning.gradual import Gradual
from tfsparsecap.pruning.l1_l2 import L1Pruning, L2Pruning
from tfsparsecap.pruning.lottery import LotteryTicket
from tfsparsecap.pruning.magnitude import Magnitude
from tfsparsecap.pruning.method import PruningMethod
from tfsparsecap.pruning.relevance import Relevance
from tfsparsecap.pruning.schedule import Schedule
from tfsparsecap.pruning.snip import SNIP
from tfsparsecap.pruning.supermask import Supermask
from tfsparsecap.pruning.supermask_loss import SupermaskLoss

__all__ = [
    "SNIP",
    "FrozenMask",
    "Gradual",
    "L1Pruning",
    "L2Pruning",
    "LotteryTicket",
    "Magnitude",
    "PruningMethod",
    "Relevance",
    "Schedule",
    "Supermask",
    "SupermaskLoss",
    "fix_zeros",
    "prune",
    "strip_pruning",
]
