"""Imports all that an embedded engine of the dense backend needs, for a fork server; nothing begins."""

# ruff: noqa: F401 - importing is the purpose

import uvloop

import seamlessflow_workers.rollout.engine.model_loading
import seamlessflow_workers.rollout.engine.process
import seamlessflow_workers.rollout.engine.server
import seamlessflow_workers.rollout.engine.service
