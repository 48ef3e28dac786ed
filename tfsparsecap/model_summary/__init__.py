"""What a model has, costs and stores, layer by layer."""
