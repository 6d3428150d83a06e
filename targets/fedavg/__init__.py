"""The LLaMA of split_llama, tuned by federated averaging."""
