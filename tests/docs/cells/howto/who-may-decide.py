# %% before "The desk"
import os

from tests.docs.examples.programs import EXAMPLES

os.environ["LOOPS"] = "loops.db"
doc.__file__ = str(EXAMPLES / "refund_desk.py")
