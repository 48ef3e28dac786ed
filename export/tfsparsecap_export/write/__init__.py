"""Writing the finished file."""
