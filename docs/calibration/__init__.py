"""False-positive rates of every p-value in headspan: one module a topic, each with `rates(seed, draws)`."""
