"""The rules that a store must keep."""
