"""`rmq pipeline`: runs the Spark pipelines."""
