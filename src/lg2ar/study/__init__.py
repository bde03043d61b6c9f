"""The study: every table of the paper as a list of runs, and how one of them is done."""
