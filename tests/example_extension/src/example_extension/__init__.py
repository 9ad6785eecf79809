"""An example of what a third party adds to SeamlessFlow without a fork."""
