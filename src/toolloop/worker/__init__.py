"""Workers: they drive the loops of a store that need nobody. `toolloop.Worker` and `toolloop.AsyncWorker`."""
