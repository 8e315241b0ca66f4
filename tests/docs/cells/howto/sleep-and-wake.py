# %% before "Sleep and wake"
import os
from pathlib import Path

from tests.kit.warm_python import run

fake(reply(calls=[("transfer", {"to": "Ben", "euros": 30})]))

# %% before "Sleep and wake" 2
fake(reply("Ben has his money."))

# %% before "One drives"
fake(reply(calls=[("slow", {})]), reply("Done."))

# %% before "After a crash"
fake(reply(calls=[("transfer", {"to": "Cleo", "euros": 5})]))
program = """
import os
from anthropic import Anthropic
from toolloop import *

@tool(needs_approval=True)
def transfer(to: str, euros: int) -> str:
    "Transfer money."
    os._exit(9)

params = {"model": "claude-opus-5-5", "max_tokens": 1024, "messages": [{"role": "user", "content": "Pay Cleo"}]}
with ToolLoopHandle.open(SqliteStore("loops.db"), "cleo", Anthropic(), tools=[transfer], params=params) as handle:
    handle.run(lambda turn: turn.approve_all(by="ana"))
"""
Path("program.py").write_text(program)
assert run(["program.py"]).returncode == 9

# %% before "After a crash" 2
fake(reply("Cleo has it."))

# %% after "Idempotency keys"
fake(reply(calls=[("pay", {"order": "7"})]), reply("Order 7 is paid."))
program = """
import os
from pathlib import Path
from anthropic import Anthropic
from toolloop import *

@tool(effect="keyed")
def pay(order: str, context: ToolContext) -> str:
    "Pay an order."
    Path("seen.txt").write_text(context.idempotency_key)
    os._exit(9)

params = {"model": "claude-opus-5-5", "max_tokens": 1024, "messages": [{"role": "user", "content": "Pay order 7"}]}
with ToolLoopHandle.open(SqliteStore("loops.db"), "seven", Anthropic(), tools=[pay], params=params) as handle:
    handle.run()
"""
Path("program.py").write_text(program)
assert run(["program.py"]).returncode == 9

# %% before "A worker"
fake(reply("Hello."))
with doc.ToolLoopHandle(doc.client, params=doc.params, tools=[doc.transfer], store=doc.store, loop_id="left") as left:
    left.update_params(max_tokens=1025)
assert [loop.status for loop in doc.store.list()][:1] == ["runnable"]

# %% before "A worker" 2
fake(reply(calls=[call("transfer", {"to": "bo", "euros": 90}, id="toolu_9")]))

# %% before "On the async handle"
fake(reply(calls=[("pay_in", {"euros": 9})]))
