"""What a page shows of calls: their inputs, character by character, their states, and the queue of them.

Not here: requests, and what a person sends.
"""
