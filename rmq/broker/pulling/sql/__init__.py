"""SQL92 message filters: reading the text of an expression and evaluating it for a message.

`tokens` cuts the text, `parser` builds the `nodes` and refuses what has no meaning, `evaluator`
turns them into functions, `numbers` reads numbers as Java does. `rmq.broker.pulling.sql_filter` is
what the rest of the broker uses. Nothing here does I/O or knows a message.
"""
