"""Kinds, sizes and places of images in prompts; nothing is decoded."""
