"""The nameserver: which brokers are alive, which topics they have, and settings by namespace.

Reading order: `registration` and `routes` (what brokers say and the table of it, pure),
`route_answers` (answers as bytes, kept until they change), `kv` and `kv_keeper` (settings by
namespace and their file), `config`, `handlers` (request codes), `server` (all of it, running).
"""
