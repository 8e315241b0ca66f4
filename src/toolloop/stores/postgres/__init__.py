"""The store in a PostgreSQL database.

Not here: rules that the SQLite store needs, too; these are beside the rooms of both.
"""
