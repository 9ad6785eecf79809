"""Rows of batches, of the offline datasets they come from, and of the sampling behind them."""
