"""Managed runtimes: from a recipe to an image that can be mounted.

recipe    what a runtime is made of and how it behaves (`runtime.yml`); one recipe is one version of one bundle
bundle    all versions of one name: `python`, `pytorch`
lock      every file that goes into a version, each with its digest; the same lock gives the same image
artifact  one such file: a wheel, a Debian package, an npm tarball, an archive
base      the few Debian packages that a build and its checks run on, and that every machine has anyway
image     the finished tree as EROFS, named by the sha256 of its bytes
manifest  what an image is: recipe, lock and files, each by digest
shelf     the directory that holds artifacts, locks, images and logs of this machine
"""
