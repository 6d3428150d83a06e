"""Renderers of a record. They compute nothing: every number shown is in audit.json."""
