"""The caller's commands: each is a function of the state that returns the event to record, or raises.

The machine refuses events that the phase does not allow. This module checks the commands against the parameters, the
tools and the history. A stored journal evaluates a command again if other events were stored first, so a command keeps
no part of the state that it saw. The caller's input is read once, before that: by `Commands.read`, `param_changes` and
`to_user_texts`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from attrs import evolve, frozen

from toolloop._engine.deciding import Check, Decided, Deciding, Decisions, decide_calls
from toolloop._engine.runtimes import ToolsOfLoops
from toolloop._handles.param_changes import SHAPING, ParamChanges
from toolloop._interface.call_names import join_path
from toolloop._interface.decisions import (
    name_of,
    refuse_invalid,
    refuse_last_word,
    refuse_unclosed,
    to_user_texts,
)
from toolloop._interface.loop_params import check_request, merge_params, refuse_crowd, refuse_short_marks
from toolloop._interface.message_edits import (
    ANY_USER,
    HistoryEdit,
    explain_place,
    make_spent_edit_error,
    preview_injection,
    preview_request,
    refuse_lost_pause,
)
from toolloop._journal.batch_writer import merge_metadata
from toolloop._messages.tool_changes import decode_changing, list_names_ever_defined, may_change_tools
from toolloop._requests.output import add_format, find_format
from toolloop.errors import IllegalCommand, InvalidHistory
from toolloop.machine.machine import allowed
from toolloop.machine.queries import everywhere, is_due, is_empty, waiting
from toolloop.machine.record import journal_events as ev
from toolloop.machine.record.loop import Failed, Finished, Loop, Path, Ready, Requesting, State, Waiting, list_messages
from toolloop.machine.refusals import make_not_allowed_error, name_injection
from toolloop.machine.rules.joining import join_rest
from toolloop.machine.rules.saying import list_kept_texts, list_new_tools
from toolloop.machine.tree import step
from toolloop.machine.values.calls import Call, Command, Continue, InjectMessages, Status, Stop
from toolloop.machine.values.jsontext import decode, describe_type, encode, make_well_formed, to_canonical
from toolloop.machine.values.setup import drop_brought
from toolloop.machine.values.splicing import apply_splices, find_splices
from toolloop.prices import refuse_unpriced
from toolloop.providers import SECRET_OPTIONS
from toolloop.stores.arguments import check_metadata
from toolloop.tools.secrets import SecretKey, give_no_key

Said = Callable[[State], ev.Event | None]  # a command with its arguments; None means that it changes nothing


@frozen
class Commands:
    """The commands of a caller.

    Args:
        runtimes: the tools of the loops.
        now: returns the time, in seconds since the epoch.
        via: where the caller decides, for the record.
        key: the key of hidden values, as they were shown where the caller decides.
        check: see `Deciding`.

    """

    _runtimes: ToolsOfLoops
    _now: Callable[[], float]
    _via: str = "handle"
    _key: SecretKey = give_no_key
    _check: Check | None = None

    def decide(self, state: State, decisions: Decisions, *, each: bool = False) -> Decided:
        """Decide calls: all of them, or none; with `each`, every call by itself. See `decide_calls`."""
        deciding = Deciding(self._runtimes, self._now(), self._via, self._key, self._check)
        return decide_calls(deciding, state, decisions, each=each)

    def revoke(self, state: State, grant_id: str, by: str | None = None) -> ev.GrantRevoked:
        """Revoke a grant. `grant_id`: as in `handle.grants`."""
        standing = ((path, grant.id) for path, loop in everywhere(state) for grant in loop.grants)
        named = (each for each in standing if join_path((*each[0], each[1])) == grant_id)
        path, name = next(named, ((), grant_id))
        return ev.GrantRevoked(name, by, path=path, **self._date(by))

    def revoke_links(self, call: str | None, by: str | None) -> ev.LinksRevoked:
        """Revoke the links to a call, or all links. Only links look at it."""
        return ev.LinksRevoked(call, by, **self._date(by))

    def set_metadata(
        self, state: State, changes: Mapping[str, str | None], known: Mapping[str, str], by: str | None = None
    ) -> ev.MetadataChanged | None:
        """Change metadata. Return None if it is so already.

        Args:
            state: the state of the loop.
            changes: the new values by key; None removes one.
            known: the metadata in the row of the loop, now or earlier.
            by: who does it, for the record.

        Raises:
            TypeError, ValueError: it is not metadata, or too much.

        """
        before = merge_metadata(known, state)
        check_metadata({key: value for key, value in {**before, **changes}.items() if value is not None})
        changed = [(key, before.get(key), value) for key, value in changes.items() if before.get(key) != value]
        return ev.MetadataChanged(tuple(changed), by, **self._date(by)) if changed else None

    def tick(self, state: State, now: float) -> ev.Ticked | None:
        """Let the time pass. Return None if no call expires by then."""
        return ev.Ticked(at=now) if is_due(state, now) else None

    def _date(self, by: str | None) -> dict[str, Any]:
        """Return when a command is given, which lets no time pass in the loop, and where if a person is named."""
        said_at = {"said_at": self._now()}
        return said_at if by is None else {**said_at, "via": self._via}

    # --- commands --------------------------------------------------------------------------------------------------

    def read(self, command: Command) -> tuple[str, Said]:
        """Return the name of a command for errors, and the function of the state.

        Raises:
            TypeError: it is not a command, or its reason or messages have the wrong type.

        """
        match command:
            case Continue(by=by):
                return "continue_loop()", partial(self.go_on, by=name_of(by))
            case InjectMessages(by=by):
                texts = to_user_texts(command.messages, "the injected messages")
                return "inject_and_continue()", partial(self.inject, texts=texts, by=name_of(by))
            case Stop(reason=None | str() as reason, by=by):
                return "stop()", partial(self.stop, reason=reason, by=name_of(by))
            case Stop():
                raise TypeError(f"stop(): the reason is {describe_type(command.reason)}; give a string, or None")
        raise TypeError(f"{command!r} is not a command; give Continue(), InjectMessages([...]) or Stop()")

    def go_on(self, state: State, by: str | None = None) -> ev.Continued:
        """Continue a loop that waits for a command. `by`: who does, for the record.

        Raises:
            IllegalCommand: the loop does not wait for a command.

        """
        if not isinstance(state.root.phase, Waiting):
            raise make_refusal(state.root, "continue_loop()")
        return ev.Continued(by=by, **self._date(by))

    def inject(self, state: State, texts: tuple[str, ...], by: str | None = None) -> ev.Continued:
        """Add messages, and continue if the loop waits for a command.

        Raises:
            IllegalCommand: the loop does not take messages now.
            UndecidedCalls: calls wait for a decision.
            InvalidHistory: the API would refuse the messages at this point.

        """
        loop = state.root
        asked = name_injection(loop)
        if isinstance(loop.phase, (Failed, Finished)):
            raise make_refusal(loop, asked)
        event = ev.Continued(texts, by, **self._date(by))
        step(state, event)  # the machine's own errors come first
        self._refuse_injected(loop, texts, asked)
        return event

    def say(
        self, state: State, texts: tuple[str, ...], said_id: str, by: str | None = None, tools: tuple[str, ...] = ()
    ) -> ev.Said | None:
        """Say something in any state, and bring tools. Return None if it was said already.

        Raises:
            BadTool: the loop would have too many tools of front ends.
            IllegalCommand: the loop is nested too deep to run, or a paused reply needs the tools that it has.
            InvalidHistory: the API would refuse the messages at this point.

        """
        if said_id in state.root.said:
            return None
        loop = state.root
        whole = (*list_messages(loop), *loop.queued, *list_kept_texts(loop), *texts) if tools else ()
        defined = list_names_ever_defined(decode_changing(whole))
        brought = [text for text in tools if decode(text)["name"] not in defined]  # one that a message defines is left
        new = list_new_tools(state.root.setup, brought)
        refuse_crowd(state.root.setup, new)
        event = ev.Said(said_id, texts, by, tools=new, **self._date(by))
        if new:
            refuse_lost_pause(step(state, event).root, asked="say()")
        if isinstance(state.root.phase, (Failed, Finished)):
            self._refuse_turn(state, event, texts, "say()")
        else:
            step(state, event)
            self._refuse_injected(state.root, texts, "say()")
        return event

    def withdraw(self, _state: State, said_id: str, by: str | None = None) -> ev.Withdrawn:
        """Take back what was said. The machine refuses it if that is not kept any more."""
        return ev.Withdrawn(said_id, by, **self._date(by))

    def stop(
        self, state: State, reason: str | None = None, by: str | None = None, *, is_driven: bool = True
    ) -> ev.Stopped:
        """End a loop. `is_driven`: whether a driver may run its calls, which are waited for then."""
        text = None if reason is None else make_well_formed(reason)
        waits = is_driven and bool(state.root.calls.having(Status.RUNNING))
        # Said only where it matters, because earlier versions cannot read it.
        is_abandoned = not is_driven and isinstance(state.root.phase, Requesting)
        return ev.Stopped(text, by, waits=waits, is_abandoned=is_abandoned, **self._date(by))

    def retry(self, state: State, by: str | None = None) -> ev.Continued:
        """Go back to the point before the request that failed.

        Raises:
            IllegalCommand: no request has failed.

        """
        if not isinstance(state.root.phase, Failed):
            raise make_refusal(state.root, "retry()")
        return ev.Continued(by=by, **self._date(by))

    def follow_up(
        self, state: State, texts: tuple[str, ...], *, replace_last: bool = False, by: str | None = None
    ) -> ev.FollowedUp | ev.Continued:
        """Begin a user turn: the first, or another one. `replace_last`: replace the last one.

        Raises:
            IllegalCommand: the loop has not ended.
            InvalidHistory: the API would refuse the messages at this point.
            ValueError: `texts` is empty.

        """
        if not texts:
            raise ValueError("follow_up() got no messages. Give at least one, or call extend() to continue without")
        if is_empty(state.root):
            self._refuse(texts, state.root, "follow_up()")
            return ev.Continued(texts, by, **self._date(by))
        if calls := waiting(state):
            raise _refuse_waiting(state.root, calls)
        event = ev.FollowedUp(texts, replace_last, by, **self._date(by))
        self._refuse_turn(state, event, texts, "follow_up()", replace_last=replace_last)
        return event

    def extend(self, state: State, limits: Mapping[str, Any], by: str | None = None) -> ev.Changed:
        """Set new limits; see `read_limits`.

        Raises:
            InvalidHistory: a limit ended the loop, and the API would refuse its edited history.
            UnpricedModel: the model has no price, and the budget limits the cost.

        """
        loop, asked = state.root, "extend()"
        event = ev.Changed(limits=evolve(loop.setup.limits, **limits), by=by, **self._date(by))
        budget = (event.limits or loop.setup.limits).budget
        refuse_unpriced(decode(loop.setup.params), budget, self._runtimes.root.config.pricing(), asked=asked)
        if isinstance(loop.phase, Finished) and 0 < loop.iterations == loop.edited_at:
            # The edit was checked with a user message after it. Now the history is sent without one.
            then = step(state, event).root
            if isinstance(then.phase, Ready):
                texts = preview_request(then)
                self._refuse(texts, then, asked)
                refuse_last_word(texts, (), decode(then.setup.params), asked=asked)
        return event

    def update_params(self, state: State, changes: ParamChanges) -> ev.Changed | None:
        """Set new request parameters. Return None if they are equal to those that the loop has.

        Raises:
            BadTool: two tools have the same name.
            IllegalCommand: the loop is nested too deep to run, or a paused reply needs the current parameters.
            InvalidHistory: the API would refuse the history with these parameters.
            ValueError: the API would refuse a parameter.

        """
        loop, tools, asked = state.root, self._runtimes.root.tools, "update_params()"
        before = decode(drop_brought(loop.setup, tools.names).params)
        kept = {name: value for name, value in before.items() if name not in changes.removed}
        new = kept | changes.stored
        if loop.setup.output and "output_config" in changes.names:
            new = add_format(new, find_format(decode(loop.setup.params)), asked)
        # Secrets are not stored, and a container also comes with a reply.
        is_known = SECRET_OPTIONS.isdisjoint(changes.names) and not changes.secrets.mcp_tokens
        if (
            is_known
            and "container" not in changes.names
            and to_canonical(new) == to_canonical(decode(loop.setup.params))
        ):
            return None
        check_request(new, tools.definitions(), asked=asked)
        refuse_short_marks(new, tools, self._runtimes.root.config.cache, asked=asked)
        refuse_unpriced(new, loop.setup.limits.budget, self._runtimes.root.config.pricing(), asked=asked)
        event = ev.Changed(params=encode(new), names=changes.names, at=self._now())
        refuse_lost_pause(step(state, event).root, asked=asked)
        if SHAPING & set(changes.names):
            params = merge_params(new, tools)
            if params["tools"] is None:
                params["tools"] = []  # an empty list: there are no tools, as opposed to unknown ones
            refuse_invalid(preview_request(loop) or (ANY_USER,), params, asked=asked)
        return event

    # --- the history -----------------------------------------------------------------------------------------------

    def edit(self, state: State, edit: HistoryEdit, *, asked: str, then: Said | None = None) -> ev.HistoryEdited:
        """Replace the closed history with the caller's edit.

        Args:
            state: the state of the loop.
            edit: the caller's edit.
            asked: the method that applies the edit, for errors.
            then: the command that follows. The history must be valid for the request after it.

        Raises:
            InvalidHistory: the API would refuse the next request.
            IllegalCommand: the history has changed meanwhile, or a paused reply needs the current one.
            CallerError: the command is not allowed.

        """
        loop = join_rest(state.root)
        if loop.messages != edit.base:
            raise make_spent_edit_error(
                f"{asked}: the history was changed elsewhere meanwhile, so your edit was not applied"
            )
        before = list(loop.messages)
        event = ev.HistoryEdited(find_splices(before, edit.messages), at=self._now())
        edited = step(state, event)
        try:
            said = None if then is None else then(edited)
        except InvalidHistory:  # the command checks only the end of the history; report earlier problems first
            self._refuse(preview_request(edited.root), edited.root, asked)
            raise
        after = (edited if said is None else step(edited, said)).root
        texts = preview_request(after)
        self._refuse(texts, after, asked)
        if after.round is None and not after.unjoined:
            refuse_last_word(texts, before, decode(after.setup.params), asked=asked)
        refuse_unclosed(apply_splices(before, event.splices), before, asked=asked)
        if not isinstance(said, ev.Stopped):  # a stop drops the paused reply
            refuse_lost_pause(edited.root, asked=asked)
        return event

    def _refuse_turn(
        self, state: State, event: ev.Event, texts: tuple[str, ...], asked: str, *, replace_last: bool = False
    ) -> None:
        """Refuse an event that begins a user turn with messages that the API would refuse."""
        then = step(state, event).root
        is_whole = replace_last or _has_marks(texts) or may_change_tools(texts)
        is_short = isinstance(state.root.phase, Finished) and not is_whole
        checked = preview_injection(state.root, texts) if is_short else list(then.messages)
        self._refuse(checked, state.root, asked)

    def _refuse_injected(self, loop: Loop, texts: tuple[str, ...], asked: str) -> None:
        """Refuse messages that the API would refuse where they join."""
        if not may_change_tools(texts):
            self._refuse(preview_injection(loop, texts), loop, asked)
        if _has_marks(texts) or may_change_tools(texts):
            self._refuse(preview_request(loop, texts), loop, asked)

    def _refuse(self, texts: Sequence[str], loop: Loop, asked: str) -> None:
        """Refuse messages that the API would refuse with the parameters of a loop."""
        tools = self._runtimes.root.tools
        params = decode(drop_brought(loop.setup, tools.names).params)
        try:
            refuse_invalid(texts, merge_params(params, tools), asked=asked)
        except InvalidHistory as error:
            raise explain_place(error, texts, loop) from None


def make_refusal(loop: Loop, asked: str) -> IllegalCommand:
    """Return the error for a command that the phase of a loop does not allow."""
    return make_not_allowed_error(loop, asked, allowed(loop))


def _refuse_waiting(loop: Loop, calls: Sequence[tuple[Path, Call]]) -> IllegalCommand:
    """Return the error for a follow-up while calls wait for a decision."""
    names = ", ".join(f"{join_path((*path, call.id))!r} ({call.name})" for path, call in calls)
    which = f"the call {names} waits" if len(calls) == 1 else f"the calls {names} wait"
    return IllegalCommand(
        f"follow_up() is not allowed while {which} for a decision. Decide first, for example with approve, deny or "
        "answer, and continue the loop. Or use say(): it keeps the message and sends it with the results",
        state=type(loop.phase).__name__,
        asked="follow_up()",
        allowed=allowed(loop),
    )


def _has_marks(texts: Sequence[str]) -> bool:
    """Return whether messages have cache marks, which are counted over the whole history."""
    return any('"cache_control"' in text for text in texts)
