"""Version of Horovod that is built, and revision of Paceline's changes to it."""

HOROVOD_VERSION = "0.28.1"
ARCHIVE_NAME = f"horovod-{HOROVOD_VERSION}.tar.gz"
ARCHIVE_SHA256 = "92a43f5a94c43907a56805bad15f19700c62ffc83b7ca483f9e104e229f67ef0"

# Incremented when hooks or patches change the behaviour for users; part of the wheel's version.
REVISION = 1
LOCAL_VERSION = f"paceline.{REVISION}"
BUILT_VERSION = f"{HOROVOD_VERSION}+{LOCAL_VERSION}"
