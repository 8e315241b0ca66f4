"""The audit trail as a file for an auditor: written, signed and verified.

Not here: what the trail has; `toolloop.inbox.trail` reads it.
"""
