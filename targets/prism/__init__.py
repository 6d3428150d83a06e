"""PRISM-VFL: differentially private vertical split learning over three hospital sites."""
