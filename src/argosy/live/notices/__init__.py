"""Notices to users about their jobs: what is sent (`outbox`), and how (`webhook`, `mail`)."""
