"""How the property tests run."""

from hypothesis import settings

# One example may be the whole life of a loop, and a busy machine takes its time over it: a deadline says nothing here.
settings.register_profile("lives", deadline=None)
settings.load_profile("lives")
