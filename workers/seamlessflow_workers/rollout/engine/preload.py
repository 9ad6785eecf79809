"""Imports all that an embedded engine of the dense backend needs, for a fork server; nothing begins."""

# ruff: noqa: F401 - importing is the purpose

import uvloop

import seamlessflow_workers.rollout.engine.engine
import seamlessflow_workers.rollout.engine.model.loading
import seamlessflow_workers.rollout.serving.process
import seamlessflow_workers.rollout.serving.server
