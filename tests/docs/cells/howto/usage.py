# %% before "See what a loop used"
fake(
    reply(
        calls=[("look", {})],
        usage={
            "input_tokens": 200,
            "output_tokens": 30,
            "cache_creation_input_tokens": 1000,
        },
    ),
    reply("It rains.", usage={"input_tokens": 40, "output_tokens": 10, "cache_read_input_tokens": 1200}),
)

# %% before "Requests in several steps"
fake(
    reply(
        "Done.",
        usage={
            "input_tokens": 220,
            "output_tokens": 8,
            "iterations": [
                {"type": "compaction", "input_tokens": 55196, "output_tokens": 125},
                {"type": "message", "input_tokens": 220, "output_tokens": 8},
            ],
        },
    )
)

# %% before "See what it cost"
fake(
    reply(
        calls=[("look", {})],
        usage={
            "input_tokens": 200,
            "output_tokens": 30,
            "cache_creation_input_tokens": 1000,
        },
    ),
    reply("It rains.", usage={"input_tokens": 40, "output_tokens": 10, "cache_read_input_tokens": 1200}),
)
