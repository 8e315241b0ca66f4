# %% after "In an application of your own"
from starlette.testclient import TestClient

page = TestClient(doc.app)
assert page.get("/approvals/").status_code == 403
assert "Nothing waits for you" in page.get("/approvals/", headers={"x-user": "ana"}).text
