"""Workers drive the loops of a store that can go on without a person: `toolloop.Worker` and `toolloop.AsyncWorker`."""
