"""Measurements that take longer than a test. Each writes its result file beside the command that
made it: python -m benchmarks.NAME"""
