"""HTML reports and contact sheets of runs."""
