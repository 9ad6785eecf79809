"""The record of every version: files under the artifact root, to which all other transports fall back."""
