"""Surveys about people: readers, schemas, leakage control, splits and the text a language model is trained on."""
