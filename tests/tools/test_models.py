"""What pydantic's own classes hold goes out as their serializers say for JSON, and nothing of it is lost in silence."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Generic, TypeVar

import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel, field_serializer
from pydantic.dataclasses import dataclass

from tests.tools.answering import error, said

Kind = TypeVar("Kind")


class Account(BaseModel):
    name: str = "Ana"
    password: str = "hunter2"
    photo: bytes = b"ok"

    @field_serializer("password", when_used="json")
    def hide(self, _: str) -> str:
        return "***"


@dataclass
class Login:
    name: str
    password: str
    token: str = Field(exclude=True)

    @field_serializer("password", when_used="json")
    def hide(self, _: str) -> str:
        return "***"


@dataclass
class Plain:
    name: str


@dataclasses.dataclass
class Wider(Plain):
    """One of Python's own, whose serializer is that of its parent."""

    role: str


class Holder(BaseModel, Generic[Kind]):
    inside: Kind


class Table(RootModel[dict[Any, Any]]):
    pass


class Alike:
    """What dumps itself as a model does, and is none."""

    def model_dump(self, *, mode: str) -> dict[str, str]:
        return {"mode": mode}


class Hex(BaseModel):
    model_config = ConfigDict(ser_json_bytes="hex")

    photo: bytes


@pytest.mark.parametrize("value", [Account(), [Account()], {"a": Account()}, Holder[Any](inside=Account())])
def test_a_field_that_is_hidden_in_json_is_hidden_from_the_model(value: Any) -> None:
    """Alone, in data, and in another model."""
    assert '"password":"***"' in said(value)
    assert "hunter2" not in said(value)


@pytest.mark.parametrize("value", [Account(photo=b"\xff"), Holder[Any](inside=Account(photo=b"\xff"))])
def test_bytes_that_a_model_cannot_write_are_an_error_and_show_nothing_hidden(value: Any) -> None:
    """It is never read in another mode, which hides other fields; its config may say how bytes are written."""
    assert "bytes that are no UTF-8 text; its model_config may say" in error(value)
    assert "hunter2" not in error(value)
    assert said(Hex(photo=b"\xff")) == '{"photo":"ff"}'


def test_a_dataclass_of_pydantic_hides_what_it_hides() -> None:
    """It has a serializer as a model has; without one of its own, it is data."""
    login = Login("Ana", "hunter2", "hunter2")
    assert said(login) == '{"name":"Ana","password":"***"}'
    assert json.loads(said([login])) == [{"name": "Ana", "password": "***"}]
    assert json.loads(said(Wider("Ana", "admin"))) == {"name": "Ana", "role": "admin"}


@pytest.mark.parametrize("pairs", [{1: 2, "1": 3}, {True: 1, "true": 2}, {None: 1, "None": 2, "null": 3}])
@pytest.mark.parametrize(
    "wrap",
    [lambda pairs: Holder[Any](inside=[pairs]), Table, dataclass(type("Box", (), {"__annotations__": {"a": Any}}))],
)
def test_keys_of_a_model_that_are_one_as_json_are_said(wrap: Any, pairs: Any) -> None:
    """Pydantic would keep the last one."""
    assert "a dict with two keys that are '" in error(wrap(pairs))


def test_what_is_written_twice_in_different_places_is_no_such_thing() -> None:
    """Nor is half a surrogate pair, which is mended, or a number of many digits."""
    assert json.loads(said(Table({"a": {"a": 1}, "b": [{"a": 1}, {"a": 2}]}))) == {
        "a": {"a": 1},
        "b": [{"a": 1}, {"a": 2}],
    }
    assert said(Alike()) == '{"mode":"json"}'
    assert said(Table({"a": "\ud800"})) == '{"a":"\N{REPLACEMENT CHARACTER}"}'
    assert said(Table({"a": 10**400})) == '{"a":1' + "0" * 400 + "}"
    assert "cannot be written as JSON" in error(Table({"a": 10**5000}))
    assert "result.inside is nan, which is not JSON" in error(Holder[float](inside=float("nan")))
