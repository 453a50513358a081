"""Loading, devices, caches and attention: everything that touches torch modules and transformers."""
