"""Latency and memory of files."""
