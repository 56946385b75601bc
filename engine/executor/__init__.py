"""What runs a step: the real model, or a simulated device. The scheduler and the cache cannot tell the difference."""
