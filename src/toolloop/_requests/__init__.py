"""Make model requests from parameters, and from messages that are encoded once.

Not here: the history's owner; requests are made from what is passed in.
"""
