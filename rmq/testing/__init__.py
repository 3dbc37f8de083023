"""Stand-ins for the world around rmq, and ways to make it fail. Only tests import this package.

`storage` is the file system of a store in memory, `faults` makes its calls fail, and `disk_model`
decides what a power cut leaves of it. `local_broker` and `pytest_plugin` give the tests of
applications a broker.
"""
