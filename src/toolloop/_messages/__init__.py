"""Histories as the API reads them: the types of content blocks, the rules, and repair."""
