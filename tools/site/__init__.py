"""The documentation site: ``python -m tools.site build`` and ``serve``. docs/internals/site.md."""
