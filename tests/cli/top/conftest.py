"""Tests of `rmq top` share the cluster of those of admin commands."""

from __future__ import annotations

from tests.cli.admin.conftest import processes, rmq, rmq_json

__all__ = ["processes", "rmq", "rmq_json"]
