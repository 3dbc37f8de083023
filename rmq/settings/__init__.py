"""Settings of brokers, stores and nameservers: how they are declared, read, checked and changed.

Reading order: `setting` (one key), `declaration` (a key at the attribute that holds its value),
`schema` (all keys of a process, rules between them, changes), `properties_file` (the text).
`yaml_file` reads files of access control and credentials.
"""
