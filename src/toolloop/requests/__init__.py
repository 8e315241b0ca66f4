"""Model requests: parameters, and messages that are encoded once."""
