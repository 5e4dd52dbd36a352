"""The check of a release: builds its files for one Python and tries each of them."""
