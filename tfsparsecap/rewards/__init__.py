"""Rewards of self-critical sequence training: CIDEr-D and BLEU per caption."""
