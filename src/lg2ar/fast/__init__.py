"""The captured step: the method arranged for a GPU, many runs at once, replayed as one graph."""
