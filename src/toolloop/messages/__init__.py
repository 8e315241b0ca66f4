"""Histories as the API reads them: what each block may hold, the rules of order, and repair."""
