"""The fake Messages API.

Not here: a loop; the fake knows requests and what the API answers to them.
"""
