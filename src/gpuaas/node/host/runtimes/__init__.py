"""Managed runtimes on a node: images by digest, each mounted once, and shown to the allocations that have them.

image    one EROFS file, named by the sha256 of its bytes (`store`)
shared   the one mount of an image on this node (`shared`), of which views have copies
view     /opt/gpuaas/runtimes of one allocation: <bundle>/<version>, and <bundle>/current (`views`)
"""
