"""The protocol's own client at a server: what its user sees, and that nothing locks it."""

from __future__ import annotations

from pathlib import Path

from tests.agui.site import LOCATION, NO, YES, Client, Node, Site, entry, open_site, texts
from tests.kit.fork_server import ForkServer
from toolloop import Approve


def test_a_reply_is_streamed_and_a_second_turn_follows(site: Site) -> None:
    """The client's messages are those of the loop, in one order, with the client's own ids."""
    ana = site.client("text")
    first = ana.run("hello there")
    assert first.types == [
        *("RUN_STARTED", "TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"),
        *("MESSAGES_SNAPSHOT", "STATE_SNAPSHOT", "RUN_FINISHED"),
    ]
    assert first.result == {"text": "You said: hello there", "termination": "complete"}
    second = ana.run("and again")
    assert second.said == [
        *(("user", "hello there"), ("assistant", "You said: hello there")),
        *(("user", "and again"), ("assistant", "You said: and again")),
    ]
    assert [each["id"] for each in second.messages[:2]] == [each["id"] for each in first.messages]


def test_an_approved_call_runs_once_and_its_result_is_shown(site: Site) -> None:
    """The call is not streamed again."""
    ana, before = site.client("approve"), site.ran()
    asked = ana.run("write it")
    (interrupt,) = asked.pending
    assert (interrupt["reason"], interrupt["toolCallId"]) == ("tool_call", "tu_1_a")
    assert asked.end["outcome"]["type"] == "interrupt"
    assert site.ran() == before
    done = ana.answer(YES)
    assert done.pending == []
    assert done.types[1:3] == ["TOOL_CALL_RESULT", "TEXT_MESSAGE_START"]
    assert texts(done.messages, "tool") == ["wrote 5 characters to a.txt"]
    assert site.ran()[len(before) :] == ["tu_1_a write_file a.txt hello"]
    assert [each["id"] for each in done.messages][: len(asked.messages)] == [each["id"] for each in asked.messages]


def test_an_edited_call_runs_as_edited(site: Site) -> None:
    ana, before = site.client("edit"), site.ran()
    ana.run("write it")
    done = ana.answer({"approved": True, "editedArgs": {"path": "b.txt", "text": "other"}})
    assert done.end["outcome"] == {"type": "success"}
    assert site.ran()[len(before) :] == ["tu_1_a write_file b.txt other"]


def test_a_wrong_edit_asks_again(site: Site) -> None:
    """The note names the field."""
    ana = site.client("wrong edit")
    ana.run("write it")
    asked = ana.answer({"approved": True, "editedArgs": {"path": 7}})
    assert "text" in asked.notes[0]["why"]
    assert len(asked.pending) == 1
    assert ana.answer(YES).pending == []


def test_a_denied_and_a_dismissed_call_do_not_run(site: Site) -> None:
    before = site.ran()
    for thread, payload in (("deny", {"approved": False, "reason": "not today"}), ("dismiss", None)):
        ana = site.client(thread)
        ana.run("write it")
        done = ana.answer(payload)
        assert done.end["outcome"] == {"type": "success"}
        assert len(texts(done.messages, "tool")) == 1
        (decided,) = [each for each in site.inbox.trail(site.loop_of(thread)) if each.kind == "deny"]
        assert (decided.by, decided.via) == ("ana", "agui")
    assert site.ran() == before


def test_a_tool_of_the_front_end_is_answered_without_an_interrupt(site: Site) -> None:
    """The result keeps the id that the client gave it."""
    ana = site.client("front end")
    asked = ana.run("where am I", tools=[LOCATION])
    assert asked.end["outcome"] == {"type": "success", "pendingToolCallIds": ["tu_1_a"]}
    assert asked.pending == []
    ana.add({"id": "mine", "role": "tool", "toolCallId": "tu_1_a", "content": "Paris"})
    done = ana.run(tools=[LOCATION])
    assert [each["id"] for each in done.messages if each["role"] == "tool"] == ["mine"]
    assert texts(done.messages, "tool") == ["Paris"]
    assert done.said[-1] == ("assistant", "All done now.")


def test_two_calls_take_different_answers(site: Site) -> None:
    ana, before = site.client("two"), site.ran()
    ana.run("two writes")
    partial = ana.run(resume=[entry(ana.pending[0], YES)])
    assert "not addressed" in str(partial.refused)  # by the client itself
    done = ana.answer(YES, None)
    assert site.ran()[len(before) :] == ["tu_1_a write_file a.txt hello"]
    assert len(texts(done.messages, "tool")) == 2
    assert done.pending == []


def test_a_round_with_an_approval_and_a_call_of_the_front_end(site: Site) -> None:
    """The result of the front end's tool stays in the client's list while the other call waits."""
    ana = site.client("mixed")
    asked = ana.run("mixed please", tools=[LOCATION])
    assert [each["toolCallId"] for each in asked.pending] == ["tu_1_a"]
    assert ana.answer(YES, tools=[LOCATION]).end["outcome"] == {"type": "success", "pendingToolCallIds": ["tu_1_b"]}
    ana.add({"id": "mine", "role": "tool", "toolCallId": "tu_1_b", "content": "Rome"})
    done = ana.run(tools=[LOCATION])
    assert texts(done.messages, "tool") == ["wrote 5 characters to a.txt", "Rome"]
    assert done.said[-1] == ("assistant", "All done now.")


def test_a_stale_resume_never_locks_the_client(site: Site) -> None:
    """Another client has decided. The run tells which decision stands, and the client goes on."""
    ana = site.client("stale")
    ana.run("write it")
    other = site.client("stale")
    other.run()
    other.answer(NO)
    late = ana.answer(YES)
    (note,) = late.notes
    assert (note["what"], note["stands"]["kind"], note["stands"]["by"]) == ("resume", "deny", "ana")
    assert late.pending == []
    assert late.end["type"] == "RUN_FINISHED"
    assert ana.run("hello").said[-1] == ("assistant", "You said: hello")


def test_a_repeated_and_an_unknown_resume_change_nothing(site: Site) -> None:
    ana, before = site.client("repeated"), site.ran()
    asked = ana.run("write it")
    answers = [entry(asked.pending[0], YES)]
    ana.run(resume=answers)
    again = ana.run(resume=answers)
    assert again.end["outcome"] == {"type": "success"}
    unknown = ana.run(resume=[entry("no interrupt", YES), entry("tu_9#0", YES)])
    assert [each["id"] for each in unknown.notes] == ["no interrupt", "tu_9#0"]
    assert len(site.ran()) == len(before) + 1


def test_a_payload_of_another_shape_asks_again(site: Site) -> None:
    ana = site.client("payload")
    ana.run("write it")
    asked = ana.answer({"approved": "yes please"})
    assert len(asked.pending) == 1
    assert asked.notes[0]["what"] == "resume"
    assert ana.answer(NO).pending == []


def test_a_result_that_the_client_makes_up_is_none(site: Site) -> None:
    """Some clients add one for an interrupt before they resume. The snapshot takes its place."""
    ana, before = site.client("made up"), site.ran()
    asked = ana.run("write it")
    ana.add({"id": "made-up", "role": "tool", "toolCallId": "tu_1_a", "content": '{"approved": true}'})
    looked = site.client("made up", messages=ana.run(resume=[entry(asked.pending[0], {"oops": 1})]).messages).run()
    assert site.ran() == before
    assert texts(looked.messages, "tool") == []
    done = ana.answer(YES, runId=asked.events[0]["runId"])
    assert texts(done.messages, "tool") == ["wrote 5 characters to a.txt"]
    assert site.ran()[len(before) :] == ["tu_1_a write_file a.txt hello"]


def test_a_message_while_a_call_waits_is_kept(site: Site) -> None:
    """The client must answer each interrupt to be allowed to speak: that decides nothing."""
    ana = site.client("speak")
    ana.run("write it")
    ana.say("and hurry")
    asked = ana.answer(None)
    assert [each["what"] for each in asked.notes] == ["message"]
    assert len(asked.pending) == 1
    done = ana.answer(YES)
    assert [role for role, _ in done.said] == ["user", "assistant", "tool", "user", "assistant"]
    assert done.said[-2] == ("user", "and hurry")


def test_the_same_message_and_the_same_run_twice(site: Site) -> None:
    """A client whose connection broke sends both again, and one that has all of it runs again. Each gets that end."""
    requests = len(site.api.requests)
    ana, again = site.client("again"), site.client("again")
    for each in (ana, again):
        each.say("hello", "m-1")
    runs = [each.run(runId="run-1") for each in (ana, again, ana)]
    assert [run.said for run in runs] == [[("user", "hello"), ("assistant", "You said: hello")]] * 3
    assert [run.end for run in runs] == [runs[0].end] * 3
    assert len(site.api.requests) == requests + 1


def test_the_state_of_the_app_stays_its_own(site: Site) -> None:
    done = site.client("state", state={"recipe": "soup", "none": None}).run("hello")
    assert {**done.state, "toolloop": None} == {"recipe": "soup", "none": None, "toolloop": None}
    assert done.state["toolloop"]["status"] == "ended"


def test_nested_calls_are_asked_about(site: Site) -> None:
    ana, before = site.client("nested"), site.ran()
    asked = ana.run("nested please")
    assert asked.pending[0]["message"] == "Run helper > write_file?"
    done = ana.answer(YES)
    assert done.said[-1] == ("assistant", "All done now.")
    assert len(site.ran()) == len(before) + 1


def test_a_nested_loop_is_a_subagent_while_it_is_followed(forks: ForkServer, node: Node, tmp_path: Path) -> None:
    """If `show` says so. Its messages are not those of the thread, so they leave the client at the end of the run."""
    with open_site(forks, node, tmp_path, show=["text", "calls", "nested"]) as site:
        check_subagents(site.client("subagent"))


def check_subagents(ana: Client) -> None:
    asked = ana.run("nested please")
    own = [(each["type"], each.get("name")) for each in asked.events if "subagentRunId" in each]
    assert own == [
        ("SUBAGENT_STARTED", "helper"),
        *((f"TEXT_MESSAGE_{part}", None) for part in ("START", "CONTENT", "END")),
        *((f"TOOL_CALL_{part}", None) for part in ("START", "END")),
        ("SUBAGENT_FINISHED", None),
    ]
    ended = next(each for each in asked.events if each["type"] == "SUBAGENT_FINISHED")
    assert ended["outcome"] == {"type": "suspended"}
    assert asked.pending[0]["subagentRunId"] == ended["subagentRunId"] == "tu_1_h"
    assert asked.said == [("user", "nested please"), ("assistant", "Let me see.")]
    done = ana.answer(YES)
    types = [each["type"] for each in done.events if "subagentRunId" in each]
    assert types[:2] == ["SUBAGENT_STARTED", "TEXT_MESSAGE_START"]
    assert types[-1] == "SUBAGENT_FINISHED"
    assert done.said[2:] == [("tool", "done"), ("assistant", "All done now.")]


def test_a_secret_is_not_shown(site: Site) -> None:
    """Neither streamed, nor in a snapshot or an interrupt; it cannot be edited."""
    ana = site.client("secret")
    asked = ana.run("secret please")
    assert "swordfish" not in str(asked.events)
    assert "editedArgs" not in asked.pending[0]["responseSchema"]["properties"]
    edited = ana.answer({"approved": True, "editedArgs": {"token": "another"}})
    assert [note["what"] for note in edited.notes] == ["resume"]
    assert edited.end["outcome"]["type"] == "interrupt"
    assert "swordfish" not in str(ana.answer(YES).events)
    assert site.ran()[-1].endswith("sign_in swordfish")


def test_a_note_names_the_group_for_which_a_call_waits(site: Site) -> None:
    ana = site.client("pay")
    asked = ana.run("pay bo")
    assert asked.end["outcome"]["interrupts"][0]["responseSchema"]["properties"]["approved"]["enum"] == [False]
    guest = site.client("pay", "guest").run("pay bo")
    assert guest.pending == []
    assert "finance" in guest.notes[0]["why"]


def test_a_client_that_has_a_reply_before_its_question_gets_both_in_order(site: Site) -> None:
    """It came between the two. Clients keep their reasoning in its place unless a snapshot has some."""
    done = site.client("order").run("read x")
    late = [each for each in done.messages if each["role"] != "user"]
    again = site.client("order", messages=late).run()
    assert [each["role"] for each in again.messages] == ["user", "reasoning", "assistant", "tool", "assistant"]


def test_two_clients_at_once(site: Site) -> None:
    """The second one follows the run, and its message goes out with the results."""
    ana, other = site.client("busy"), site.client("busy")
    ana.say("hold please")
    running = ana.begin()
    site.server.hear("held")
    other.say("me too")
    second = other.begin()
    site.node.ask("until", name=other.name, type="MESSAGES_SNAPSHOT")
    site.server.go()
    first_run, second_run = (site.run_of(each) for each in (running, second))
    assert second_run.said == first_run.said
    assert ("user", "me too") in first_run.said
    assert [role for role, _ in first_run.said] == ["user", "assistant", "tool", "user", "assistant"]


def test_a_client_that_leaves_stops_nothing(site: Site) -> None:
    ana = site.client("leave")
    ana.say("hold please")
    running = ana.begin()
    site.server.hear("held")
    ana.leave()
    assert site.run_of(running).errors == ["abort"]
    site.server.go()
    assert ana.run().said[-1] == ("assistant", "All done now.")


def test_a_decision_on_the_page_goes_on_without_a_client(site: Site) -> None:
    ana, before = site.client("page"), site.ran()
    ana.run("write it")
    loop = site.loop_of("page")
    site.inbox.as_("bo").decide(loop, {"tu_1_a": Approve()})
    site.inbox.wait(loop, "ended", timeout=30)
    assert len(site.ran()) == len(before) + 1
    done = ana.answer(YES)
    assert done.notes[0]["stands"]["by"] == "bo"
    assert done.said[-1] == ("assistant", "All done now.")
