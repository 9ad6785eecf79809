"""Imports everything that an embedded engine with the dense backend needs, for the fork server; starts nothing."""

# ruff: noqa: F401 - importing is the purpose

import uvloop

import seamlessflow_workers.rollout.engine.engine
import seamlessflow_workers.rollout.engine.model.loading
import seamlessflow_workers.rollout.serving.process
import seamlessflow_workers.rollout.serving.server
import seamlessflow_workers.rollout.serving.supervised
