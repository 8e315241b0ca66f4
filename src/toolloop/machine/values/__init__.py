"""Frozen values and texts that know no loop."""
