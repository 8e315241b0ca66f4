"""The pure core: values, states, events, effects and the machine. No I/O, clock, randomness, threads or logging."""
