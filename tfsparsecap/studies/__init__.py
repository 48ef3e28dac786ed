"""Studies: many runs, one table and one plot."""
