"""The fake Messages API."""
