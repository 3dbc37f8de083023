"""The nameserver: which brokers are alive, which topics they have, and settings by namespace.

Reading order: `registration` and `routes` (registrations and the route table, pure),
`route_answers` (encoded responses, cached until they change), `kv` and `kv_keeper` (settings by
namespace and their file), `config`, `handlers` (request codes), `server` (the running nameserver).
"""
