"""Structured pruning: models with fewer channels, units and heads."""
