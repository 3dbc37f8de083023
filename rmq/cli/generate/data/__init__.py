"""Texts that `rmq generate` fills in (`rmq.cli.generate.templates`)."""
