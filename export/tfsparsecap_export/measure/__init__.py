"""Latency, memory and kernel costs of files."""
