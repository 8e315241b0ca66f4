"""A door imports a name at first use, and is a module like any other in all else."""

from __future__ import annotations

import importlib
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FILES = {
    "__init__.py": "from toolloop._doors import door\n"
    "__all__ = ['check', 'Kind', 'absent']\n"
    "door(__name__, {'house.check': ('check', 'absent'), 'house.kinds': ('Kind',)}, modules=('rooms',))\n",
    "check.py": "def check(): return 'checked'\n",
    "kinds.py": "class Kind: pass\n",
    "rooms/__init__.py": "",
    "other.py": "",
}


@pytest.fixture
def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A package behind a door."""
    for name, text in FILES.items():
        (tmp_path / "house" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "house" / name).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("house")
    for name in [name for name in sys.modules if name.partition(".")[0] == "house"]:
        del sys.modules[name]


def test_a_name_is_imported_when_it_is_asked_for(house: ModuleType) -> None:
    """It alone, and once."""
    assert "house.kinds" not in sys.modules
    kind = house.Kind
    assert kind is sys.modules["house.kinds"].Kind
    assert vars(house)["Kind"] is kind
    assert "house.check" not in sys.modules


def test_a_module_of_its_own_is_imported_when_it_is_asked_for(house: ModuleType) -> None:
    """Those that the door names; any other is there once somebody imported it, as everywhere."""
    assert house.rooms is sys.modules["house.rooms"]
    with pytest.raises(AttributeError):
        _ = house.other
    assert importlib.import_module("house.other") is house.other


def test_the_public_name_goes_before_the_module_that_has_it(house: ModuleType) -> None:
    """Whether the module was imported before, or the name was asked for."""
    importlib.import_module("house.check")
    assert house.check() == "checked"
    del sys.modules["house.check"]
    importlib.import_module("house.check")
    assert house.check() == "checked"


def test_anything_may_be_put_in_the_place_of_a_name(house: Any) -> None:
    """By those who test with a stand-in, as in any module."""
    house.check = 3
    assert house.check == 3
    del house.check
    assert house.check() == "checked"


def test_a_wrong_name_is_refused(house: ModuleType) -> None:
    """One that the door does not know, with the door's name; one that its module does not have, with that one's."""
    with pytest.raises(AttributeError, match="module 'house' has no attribute 'wrong'") as caught:
        _ = house.wrong
    assert (caught.value.name, caught.value.obj) == ("wrong", house)
    with pytest.raises(AttributeError, match=r"module 'house\.check' has no attribute 'absent'"):
        _ = house.absent


def test_a_door_lists_what_is_behind_it(house: ModuleType) -> None:
    """Before anything of it is imported, beside what every module has."""
    assert {"check", "Kind", "rooms", "__all__", "__name__"} <= set(dir(house))
    assert dir(house) == sorted(dir(house))


def test_a_door_is_pickled_by_its_name(house: ModuleType) -> None:
    """As modules are by those who pickle functions with what they use."""
    assert pickle.loads(pickle.dumps(house)) is house
