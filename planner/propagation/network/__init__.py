"""The network: kernels, ports and values by number, with what rows, facts and ranges say of them."""
