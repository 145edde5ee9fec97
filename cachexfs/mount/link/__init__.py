"""The kernel link: owns /dev/fuse, and passes its messages on to libfuse, edited where needed.

    kernel <--/dev/fuse--> relay <--socket pair--> libfuse, pyfuse3, our handlers
                            |
                            +-- answers what pyfuse3 has no handler for (fallocate, ...)

`codec` is pure: bytes in, bytes and decisions out. `device` makes the system calls. `relay` moves
the messages. `backings` counts which inode has which file registered with the kernel.
"""
