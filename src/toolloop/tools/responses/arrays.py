"""NumPy's scalars and arrays as plain values, where NumPy is in use; it is never imported here."""

from __future__ import annotations

import sys
from typing import Any

# What `tolist` turns into Python's own values without loss: booleans, integers, floats of up to 8 bytes, text.
_SIMPLE = "biufU"
_LONG = 8
_NO_FIXED_LENGTH = {"Y", "M", "generic"}  # units of time: a month has no number of seconds


def simpler(value: Any) -> tuple[Any] | None:
    """A value of NumPy one step nearer to JSON, in a tuple of one; None for a value of anything else."""
    numpy = sys.modules.get("numpy")  # whoever has a value of NumPy has imported it
    if numpy is None or not isinstance(value, numpy.generic | numpy.ndarray):
        return None
    if isinstance(value, numpy.generic):
        return (_scalar(value, numpy),)
    if isinstance(value, numpy.matrix):
        value = numpy.asarray(value)  # a row of a matrix is a matrix again, for ever
    if value.dtype.names and value.ndim == 0:  # as a row of a masked array is
        return (_row(value),)
    if value.dtype.kind in _SIMPLE and (value.dtype.itemsize <= _LONG or value.dtype.kind == "U"):
        return (value.tolist(),)
    return (value[()] if value.ndim == 0 else list(value),)


def _scalar(value: Any, numpy: Any) -> Any:
    match value.dtype.kind:
        case "M":  # ISO 8601, as exact as the value is
            return float("nan") if numpy.isnat(value) else str(value)
        case "m":
            return float("nan") if numpy.isnat(value) else _duration(value, numpy)
        case "V" if value.dtype.names:
            return _row(value)
        case "f":
            return float(value)
    return value.item()


def _row(value: Any) -> dict[str, Any]:
    return {name: value[name] for name in value.dtype.names}


def _duration(value: Any, numpy: Any) -> Any:
    unit, _ = numpy.datetime_data(value.dtype)
    exact = unit not in _NO_FIXED_LENGTH and value.astype("m8[us]").astype(value.dtype) == value
    return value.astype("m8[us]").item() if exact else str(value)
