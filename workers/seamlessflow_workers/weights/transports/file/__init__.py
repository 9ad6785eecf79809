"""The record of every version: files below the artifact root, which all other transports fall back to."""
