"""Between hosts: one broadcast to all engines that ask at the same time, by NCCL or gloo."""
