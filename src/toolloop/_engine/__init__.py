"""Which operation comes next, and what its end means. Waits for nothing, and performs nothing."""
