"""The fake Messages API.

Not here: code of the library's own rules; the fake judges requests by itself.
"""
