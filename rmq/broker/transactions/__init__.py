"""Transactions: half messages, what producers decide about them, and asking those who do not.

`half` and `question` know the messages, `copies` which of them stand for one another, `decisions`
what becomes of a decided one, `check_round` whom to ask, and `checks` runs the rounds.
"""
