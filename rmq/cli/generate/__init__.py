"""`rmq generate`: files for running rmq, filled in from the settings of a broker.

Every kind of file is one module with a constant `KIND`, listed in `command.KINDS`; its texts are in
`data`. What is in the folder `ops` of the project is what the kinds make of their defaults.
"""
