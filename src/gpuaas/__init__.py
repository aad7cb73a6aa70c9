"""GPUaaS: machines with GPUs as a service. Start reading at ARCHITECTURE.md."""

__version__ = "0.1.0"
