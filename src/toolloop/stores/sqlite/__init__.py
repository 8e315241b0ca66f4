"""The store in a SQLite file.

Not here: rules that the PostgreSQL store needs, too; these are beside the rooms of both.
"""
