"""Weights, FLOPs and storage of a model, layer by layer."""
