"""Hosts on one machine: network namespaces with a mount, a peer and a shared file system."""
