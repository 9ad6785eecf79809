"""Imports everything that a trainer needs up to its first step, for the fork server; starts nothing.

The modules that torch and transformers would import only when an engine is made are listed too: they take a second.
"""

# ruff: noqa: F401 - importing is the purpose

import deepspeed.module_inject.auto_ep_layer
import torch._dynamo
import transformers.models.llama.modeling_llama
import transformers.models.qwen2.modeling_qwen2
import transformers.models.qwen3.modeling_qwen3

import seamlessflow_workers.train.distributed.gang
import seamlessflow_workers.train.distributed.rank_group
import seamlessflow_workers.train.main
import seamlessflow_workers.train.weight_offers
import seamlessflow_workers.weights.transports.broadcast.sending
