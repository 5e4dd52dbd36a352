"""Consumers with the classes, names and errors of other Python clients, one package for each."""
