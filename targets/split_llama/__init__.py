"""Schema-aware split learning of a LoRA-adapted LLaMA over surveys."""
