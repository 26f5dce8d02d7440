"""Packages and the one compiled module. Names, versions and dependencies are in pyproject.toml."""

from pathlib import Path

from pybind11.setup_helpers import ParallelCompile, Pybind11Extension, build_ext
from setuptools import setup

# Import name -> folder. The top-level folders follow Horovod's own, the import names follow the user's view.
PACKAGES = {
    "paceline": "plugin",
    "paceline.core": "plugin/core",
    "paceline.fusion": "plugin/fusion",
    "paceline.timing": "plugin/timing",
    "paceline.host": "plugin/host",
    "paceline.host.shims": "plugin/host/shims",
    "paceline.bridge": "plugin/bridge",
    "paceline.torch": "frameworks/torch",
    "paceline.tensorflow": "frameworks/tensorflow",
    "paceline.keras": "frameworks/keras",
    "paceline.launch": "launch",
    "paceline.launch.cluster": "launch/cluster",
    "paceline.examples": "examples",
    "paceline.benchmarks": "examples/benchmarks",
}

CORE = Path("plugin/core")

ParallelCompile("PACELINE_BUILD_JOBS", default=2).install()

setup(
    packages=list(PACKAGES),
    package_dir=PACKAGES,
    package_data={
        "paceline": ["py.typed"],
        # The host build compiles these into Horovod's libraries, so an installed Paceline carries them.
        "paceline.core": ["*.h", "*.cc", "*.pyi"],
        "paceline.bridge": ["*.h", "*.cc"],
        "paceline.host": ["*.cmake"],
    },
    ext_modules=[
        Pybind11Extension(
            "paceline.core._core",
            sorted(str(source) for source in CORE.glob("*.cc")),
            include_dirs=["plugin"],
            cxx_std=17,
        )
    ],
    cmdclass={"build_ext": build_ext},
)
