"""Reports on runs: a page of charts and tables."""
