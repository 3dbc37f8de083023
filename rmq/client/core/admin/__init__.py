"""Everything an admin tool can ask of nameservers and brokers, as flows, by subject. Pure.

Every flow takes the nameservers first. `rmq.client.trio.admin` runs them on trio,
`rmq.client.blocking.admin` on plain sockets; both have one method for each of them, under the same
name. Reading order: `targets` (who is asked, and what if one does not answer), then the
subjects.
"""
