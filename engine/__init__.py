"""Batchscope's continuous-batching engine.

Nothing heavy is imported here: the page process and the tools import ``engine.config``, ``engine.state`` and
``engine.client`` without ever loading torch.
"""
