"""Rewards for self-critical sequence training: CIDEr-D and BLEU-4 of single captions."""
