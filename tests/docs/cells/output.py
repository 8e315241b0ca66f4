# %% before "Results with a type"
fake(reply(calls=[("read_mail", {"number": 3})]), reply('{"number": 7, "euros": 20}'))

# %% before "An answer that does not fit"
fake(reply('{"euros": 500}'), reply('{"euros": 50}'))
