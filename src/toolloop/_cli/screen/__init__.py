"""What the command prints, and the keys that it reads.

Not here: decisions. A store is read only for the whole input of a call whose row shortens it.
"""
