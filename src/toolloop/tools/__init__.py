"""Tools: functions, their schema and validation, the registry."""
