"""Check the names of people where they are given: what the caller gives as `by`."""

from __future__ import annotations

from toolloop.machine.values.jsontext import describe_type, make_well_formed
from toolloop.machine.values.names import Person, find_name_flaw


def person_of(by: object) -> tuple[str | None, tuple[str, ...]]:
    """Return the name and the groups of the person who acts; no name if none is given.

    Raises:
        TypeError: the value is not a name, a `Person` or None.
        ValueError: the name would mislead: it is empty, a rule's, has characters that cannot be seen, or mixes scripts.

    """
    name = by.name if isinstance(by, Person) else by
    groups = by.groups if isinstance(by, Person) else ()
    if name is None and not isinstance(by, Person):
        return None, ()
    if not isinstance(name, str) or not all(isinstance(group, str) for group in groups):
        raise TypeError(f"by: expected the name of a person, a Person, or None, got {describe_type(by)}")
    if (why := find_name_flaw(str.__str__(name))) is not None:
        raise ValueError(f"by: {name!r} is refused as the name of a person, because {why}")
    # Of a subclass of `str`, only the text counts.
    return str.__str__(name), tuple([make_well_formed(str.__str__(group)) for group in groups])
