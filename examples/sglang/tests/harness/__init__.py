"""What the tests stand on: SGLang without torch, cache pools in host memory, and an expectation of their bytes."""
