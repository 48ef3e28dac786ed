"""Rewards of single captions while a captioner is trained on them (self-critical sequence training).

`caption_reward` weighs CIDEr-D and BLEU-4 of sampled token ids, which it computes in NumPy
from the counts of n-grams in `references`.
"""
