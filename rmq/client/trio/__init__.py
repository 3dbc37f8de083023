"""The client on trio: `opening` has what applications open, `loop` what trio is asked for.

All else is in `rmq.client.tasks`.
"""
