"""The load of bench_broker.py: a process of its own that does as little as it can per message.

It talks to any RocketMQ 4.9 broker over plain blocking sockets. Frames are made before the clock
runs, answers are cut and checked but not decoded, and nothing is collected or logged meanwhile.
"""
