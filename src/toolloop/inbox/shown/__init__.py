"""What the page and the command show of calls: inputs, character by character, states, and the queue.

Not here: requests, terminals, and what a person sends.
"""
