"""The handles: what a caller holds to drive a loop."""
