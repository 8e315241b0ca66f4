"""The handles, the drivers, and what they record."""
