"""The first machine, frozen: an oracle for the one in the package. Only `tests/machine/test_oracle.py` imports it."""
