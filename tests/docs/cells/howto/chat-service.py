# %% before "Build a chat service"
import os

os.environ["LOOPS"], os.environ["BANK"] = "loops.db", "http://127.0.0.1:9"

# %% before "What a page sends and gets"
from fastapi.testclient import TestClient

fake(reply("I can pay it back.", calls=[call("refund", {"order": 7, "euros": 500})]), reply("Then I leave it."))
http = TestClient(doc.app, headers={"x-user": "ana", "sec-fetch-site": "same-origin"})
http.__enter__()
doc.http = http


def seen(chat, status):
    while (view := http.portal.call(doc.INBOX.show, chat))["status"] != status:
        pass
    return view


doc.seen = seen

# %% before "Stream the answer of a request"
import sys

sys.modules["chat_service"] = doc

# %% after "Stream the answer of a request"
del sys.modules["chat_service"]
assert {route.path for route in doc.app.routes} >= {"/chats/{chat}/answer", "/chats/{chat}/events"}

# %% after "Who may do what"
http.portal.call(doc.CLIENT.close)
http.__exit__(None, None, None)
