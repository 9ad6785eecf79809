"""Agent clients: a package, so that their gateways may end with them."""
