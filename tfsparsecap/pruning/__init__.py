"""Pruning methods, and functions that add them to a model and remove them.

`prune` (in `apply`) replaces the weights of a model by gated ones and gives the gates to a method; `compile`
and `fit` then work as before, because a `pruned_model` samples the gates and its `optimizer` calls the method
after each step. A `method` moves gates: by training them (`supermask`, `supermask_loss`), by size
(`magnitude`, `gradual`), by gradients (`snip`), by rewinding (`lottery`) or by a score of the validation
(`relevance`, `l1_l2`, with `feedback`). A `schedule` says when. `strip_pruning` makes a stock Keras model
with zeros again.
"""

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
