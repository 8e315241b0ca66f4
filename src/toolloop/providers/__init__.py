"""What answers model requests."""
