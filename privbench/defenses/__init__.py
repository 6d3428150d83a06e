"""Defences: what a party does to a tensor before it leaves."""
