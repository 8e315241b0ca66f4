"""The handles: what a caller holds to drive a loop. Their names are public in `toolloop`."""
