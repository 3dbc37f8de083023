"""Transactions: half messages, decisions of producers, and questions to those that do not decide.

`half` and `question` build the messages, `copies` knows which of them stand for one another,
`decisions` commits or rolls back, `check_round` selects transactions to ask about, and `checks`
runs the rounds.
"""
