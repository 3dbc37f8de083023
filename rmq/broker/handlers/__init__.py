"""Request handlers of the broker, one module per subject.

Each module has one class. It is given the few parts it works with, never the whole broker, and puts
its handlers into the table of the server with `add_to`. A handler takes a `Request` and answers it;
to refuse it raises `RefusedError`, which becomes the response.
"""
