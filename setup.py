"""Packages and the one compiled module. Names, versions and dependencies are in pyproject.toml."""

from pathlib import Path

from pybind11.setup_helpers import ParallelCompile, Pybind11Extension, build_ext
from setuptools import setup

# Import name -> folder. The top-level folders follow Horovod's own, the import names follow the user's view. Rooms
# below a folder are found by their __init__.py.
FLOORS = {
    "paceline": "plugin",
    "paceline.torch": "frameworks/torch",
    "paceline.tensorflow": "frameworks/tensorflow",
    "paceline.keras": "frameworks/keras",
    "paceline.keras3": "frameworks/keras3",
    "paceline.launch": "launch",
    "paceline.examples": "examples",
}
# Measuring is done in a clone: not installed.
LEFT_OUT = ("examples/benchmarks", "examples/reproduction")
PACKAGES = {
    ".".join((name, *made.parent.relative_to(folder).parts)): str(made.parent)
    for name, folder in FLOORS.items()
    for made in sorted(Path(folder).rglob("__init__.py"))
    if not any(made.is_relative_to(one) for one in LEFT_OUT)
}
ParallelCompile("CMAKE_BUILD_PARALLEL_LEVEL", default=2).install()

setup(
    packages=list(PACKAGES),
    package_dir=PACKAGES,
    package_data={
        "paceline": ["py.typed"],
        # Job files to be filled, in any package.
        "": ["*.template"],
        # `paceline horovod install` compiles these into Horovod's libraries, so an installed Paceline carries them.
        "paceline.core": ["**/*.h", "**/*.cc", "*.pyi"],
        "paceline.bridge": ["**/*.h", "**/*.cc"],
        "paceline.horovod": ["*.cmake"],
    },
    ext_modules=[
        Pybind11Extension(
            "paceline.core._core",
            sorted(str(source) for source in Path("plugin/core").rglob("*.cc")),
            include_dirs=["plugin"],
            cxx_std=17,
        )
    ],
    cmdclass={"build_ext": build_ext},
)
