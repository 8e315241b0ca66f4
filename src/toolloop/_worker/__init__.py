"""Workers drive the loops of a store that can go on without a person: `toolloop.Worker` and `toolloop.AsyncWorker`.

Not here: how a loop is driven; a worker opens a handle for that.
"""
