"""The handles, the drivers and the journal."""
