"""Graphs from where they are to batches on a device."""
