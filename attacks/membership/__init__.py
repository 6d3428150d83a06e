"""Membership inference: was this record trained on?"""
