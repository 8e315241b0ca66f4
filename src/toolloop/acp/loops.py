"""What a factory returns for a session: the store, the provider and the tools of its loop."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Mapping
from typing import Any

from attrs import field, frozen

from toolloop import AsyncInbox, Grant, LoopConfig, Person
from toolloop.inbox import May
from toolloop.providers import AsyncProvider
from toolloop.stores import Store
from toolloop.tools import Context
from toolloop.types import JSON, AsyncSdkClient, Tools

# The metadata of the loops of an editor. A loop without it is not a session.
PERSON, FOLDER, TITLE = "acp.person", "acp.cwd", "acp.title"
ROOT = "/"  # the folder of a session whose metadata lost it


def _to_person(person: str | Person) -> Person:
    return person if isinstance(person, Person) else Person(person)


@frozen
class AcpSession:
    """A session that an editor opens.

    Attributes:
        folder: the folder that it works in: an absolute path. If an editor lists all sessions, the current folder.
        id: the id of the session, which is the id of its loop; None to list the sessions that exist.

    """

    folder: str
    id: str | None = None


@frozen
class AcpLoops:
    """The parts of the loops of an editor.

    Attributes:
        store: keeps the loops. A session that was killed goes on from it.
        provider: as for `AsyncToolLoopHandle`.
        tools: likewise.
        params: likewise, without messages.
        config: likewise.
        context: likewise.
        person: who sits at the editor. This person alone sees the sessions. By default, the user of this process.
        may: returns whether the person may do something, as for `AsyncInbox.as_`.
        describe: a function of the name and the input of a call. It returns fields of the protocol's tool call, such as
            `title`, `kind` and `locations`, which replace the default ones. Secret values are hidden in the input.
        always: for tools by name: a grant that a person may give with an approval, beside that for exactly the same
            input.

    """

    store: Store
    provider: AsyncProvider | AsyncSdkClient
    tools: Tools
    params: Mapping[str, Any]
    config: LoopConfig | None = None
    context: Context | None = None
    person: Person = field(factory=lambda: Person(getpass.getuser()), converter=_to_person)
    may: May | None = None
    describe: Describe | None = None
    always: Mapping[str, Grant] = field(factory=dict)

    def mark(self, **more: str) -> dict[str, str]:
        """Return the metadata by which the sessions of the person are found."""
        return {PERSON: self.person.name, **more}

    def inbox(self) -> AsyncInbox:
        """Return the inbox of the person, who sees the own sessions."""
        return AsyncInbox(self.store).as_(self.person, may=self.may, sees=lambda _: [self.mark()], via="acp")


Describe = Callable[[str, Mapping[str, JSON]], Mapping[str, JSON]]
Factory = Callable[[AcpSession], AcpLoops]
