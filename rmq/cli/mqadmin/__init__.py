"""`rmq admin NAME`: the commands of `mqadmin` that operators use most, with its names and flags.

They print the columns of mqadmin, and end with an exit code that tells success from failure, which
those of mqadmin do not. What is new has commands of its own: `rmq topic`, `rmq group` and so on.
"""
