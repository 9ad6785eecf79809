"""Between hosts: one broadcast to all engines that ask in the same moment, by NCCL or gloo."""
