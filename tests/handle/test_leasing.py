"""The right to drive, by itself: which lease ends, and which does not."""

from __future__ import annotations

from tests.handle.support import params
from toolloop import MemoryStore, ToolLoopHandle
from toolloop.handle import leasing
from toolloop.testing import ScriptedProvider, reply


def test_the_end_of_an_old_lease_leaves_a_newer_one_of_the_same_handle_alone() -> None:
    """The keeper may come to the old one late: it must not take the new one for it."""
    store = MemoryStore()
    handle = ToolLoopHandle(ScriptedProvider([reply("done")]), params=params(), store=store, loop_id="loop")
    handle._take_lease()
    recorder, old = handle._stored, leasing._HELD[handle._owner or ""]
    assert recorder is not None
    old.done = True
    owner = leasing.new_owner()
    new = leasing.claim(recorder, owner, handle)  # a handle does not stand in its own way
    recorder.drive_with(new)
    handle._owner = owner
    leasing.renew(old)
    assert recorder.lease == new
    assert store.lease("loop") == new
    handle._end_lease()
    assert store.lease("loop") is None
    assert handle.run().unwrap().text == "done"
