"""The request log: written in batches, read in pages, summed, checked and deleted."""
