"""Make model requests from parameters, and from messages that are encoded once."""
