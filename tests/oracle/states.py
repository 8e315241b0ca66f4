"""Where a loop is. One frozen class per state; each owns exactly the data it may know."""

from __future__ import annotations

from typing import Literal

from attrs import field, frozen

from tests.oracle.chain import Chain
from tests.oracle.repetition import NOTHING_SEEN, Trail
from tests.oracle.setup import Setup
from tests.oracle.stops import Fate
from tests.oracle.terminations import Termination
from tests.oracle.usage import IterationUsage, Usage
from tests.oracle.values import Round, StandingGrant


@frozen
class Ledger:
    """What every state knows.

    Attributes:
        messages: the closed history, a JSON text each.
        held: injected messages that wait for a legal place.
        response: the last reply, verbatim.
        container: the id of the container in which code runs that the model's open turn goes on with.
        ran: the ids of the calls that were started.
        iterations: answered requests; `turn_iterations` and `active` (seconds) count since the last user turn.
        pauses: how many times in a row the model paused.
        now: the latest time that was heard of, in seconds since the epoch; it never runs backwards.
        grants: in the order in which they were given; the used up and the expired stay, the revoked do not.
        unbound: where thinking stands that was born after other words than those before it now: from which place on,
            and up to which, of the messages, those beside them, and the open reply.
        edited_at: how many requests had been answered when another history was last put in the place of this one.
        compacted: by its name, how many tokens each compaction left the last time.
        trail: what the model did in this user turn, where it is noticed that it goes in circles.

    """

    setup: Setup
    messages: Chain[str]
    held: tuple[str, ...] = ()
    response: str | None = None
    container: str | None = None
    usage_log: Chain[IterationUsage] = field(factory=Chain)
    total_usage: Usage = field(factory=Usage)
    ran: Chain[str] = field(factory=Chain)
    iterations: int = 0
    turn_iterations: int = 0
    pauses: int = 0
    active: float = 0.0
    now: float = 0.0
    grants: tuple[StandingGrant, ...] = ()
    trail: Trail = NOTHING_SEEN
    unbound: tuple[tuple[int, int], ...] = ()
    edited_at: int = 0
    compacted: tuple[tuple[str, int], ...] = ()


@frozen
class Failure:
    """Why a request failed, as data; the handle makes an exception of it. `path`: in which loop of the tree."""

    kind: Literal["model", "protocol"]
    message: str
    status: int | None = None
    error_type: str | None = None
    retryable: bool = False
    retry_after: float | None = None
    request_id: str | None = None
    path: tuple[str, ...] = ()


@frozen
class Back:
    """Where a loop stood when a limit ended it: `extend` lets it go on from there. Calls may still run in its round."""

    messages: Chain[str]
    held: tuple[str, ...]
    tail: tuple[str, ...]
    round: Round | None
    container: str | None = None


@frozen
class Ready:
    """A request is next. `tail`: messages beside the history that go out with it."""

    ledger: Ledger
    tail: tuple[str, ...] = ()


@frozen
class Requesting:
    """A request is under way.

    Attributes:
        stopped: the caller said stop, for `reason`, and the loop ends once the request is over.
        summary: it is one for a summary of the history.

    """

    ledger: Ledger
    tail: tuple[str, ...] = ()
    stopped: bool = False
    reason: str | None = None
    summary: bool = False


@frozen
class Proposed:
    """A reply with calls is shown to the caller, who has the word over it before anything of it is judged.

    Only where the setup says that replies are shown: see `Setup.shows_replies`.
    """

    ledger: Ledger
    round: Round


@frozen
class Judging:
    """The reply is in, and nothing of it ran: `stop_when` and the policies have their say."""

    ledger: Ledger
    round: Round
    fate: Fate


@frozen
class Deciding:
    """Calls wait for the caller's word, and the loop for a command."""

    ledger: Ledger
    round: Round


@frozen
class Running:
    """What is decided runs."""

    ledger: Ledger
    round: Round


@frozen
class Executed:
    """The round is closed, and the loop waits for a command. `tail`: what of it cannot join the history yet."""

    ledger: Ledger
    round: Round
    tail: tuple[str, ...] = ()


@frozen
class Paused:
    """The model paused, and the loop waits for a command."""

    ledger: Ledger
    tail: tuple[str, ...]


@frozen
class Finished:
    """The loop has ended. `back`: where it goes on if limits are extended."""

    ledger: Ledger
    termination: Termination
    back: Back | None = None


@frozen
class Failed:
    """A request failed; nothing was consumed. `round`: with which the loop goes on, if it failed inside of a call."""

    ledger: Ledger
    failure: Failure
    tail: tuple[str, ...] = ()
    round: Round | None = None


@frozen
class TooDeep:
    """The loop is nested too deep to run at all. Nothing can mend that."""

    ledger: Ledger


State = Ready | Requesting | Proposed | Judging | Deciding | Running | Executed | Paused | Finished | Failed | TooDeep
Open = Proposed | Judging | Deciding | Running
