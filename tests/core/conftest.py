"""How the property tests of the core run."""

from hypothesis import settings

# A whole life of a loop is one example, and a busy machine takes its time over it: no deadline says anything here.
settings.register_profile("lives", deadline=None)
settings.load_profile("lives")
