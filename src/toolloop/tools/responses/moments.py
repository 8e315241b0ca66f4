"""Dates, times and durations in the words of ISO 8601, exactly."""

from __future__ import annotations

from datetime import date, time, timedelta


def moment(value: date | time) -> str:
    """A date, a time or both; one of UTC ends with a Z, as pydantic writes it.

    Pydantic itself leaves the seconds of an offset out, which old local times have: that is another instant.
    """
    text = value.isoformat()
    return f"{text[:-6]}Z" if text.endswith("+00:00") else text


def duration(value: timedelta) -> str:
    """A duration, in days at most: a year has no fixed number of them."""
    sign, value = ("-", -value) if value < timedelta() else ("", value)
    minutes, seconds = divmod(value.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    exact = f"{seconds}.{value.microseconds:06}".rstrip("0") if value.microseconds else str(seconds)
    days = f"{value.days}D" if value.days else ""
    clock = (f"{hours}H" if hours else "") + (f"{minutes}M" if minutes else "") + (f"{exact}S" if exact != "0" else "")
    return f"{sign}P{days}" + (f"T{clock}" if clock else "") if days or clock else "PT0S"
