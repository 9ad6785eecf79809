"""An example of how a third party extends SeamlessFlow without a fork."""
