"""The check of a release: builds what would be uploaded and tries each distribution."""
