"""The approval page: a small server-rendered web application for a store.

Not here: decisions of its own; each form becomes a call of the inbox.
"""

try:
    from toolloop.inbox.page.app import inbox_app
except ModuleNotFoundError as _missing:
    raise ImportError(
        f"the approval page needs Starlette, Jinja2 and itsdangerous ({_missing}): pip install 'toolloop[inbox]'",
        name=_missing.name,
    ) from _missing

__all__ = ["inbox_app"]
