# Included by Horovod's own CMakeLists.txt through CMAKE_PROJECT_horovod_INCLUDE; the function runs when its targets exist.
#
# - torch >= 2.1 needs C++17 and torch 2.13 C++20 in its headers; Gloo must be compiled as C++17 or newer then, or the
#   linker finds gloo::kDefaultTimeout twice. TensorFlow 2.21 is content with C++17, which Horovod sets for it.
# - Horovod's XLA operations do not compile against the headers that TensorFlow's wheels bring; they are left out.
# - Paceline's sources are compiled into both libraries.
# - Without HOROVOD_GPU_OPERATIONS (PACELINE_WITHOUT_GPU) no CUDA and no ROCm is looked for.
# - What both libraries compile alike (Horovod's common sources, ours, Gloo) is compiled once.

# Horovod raises this to -O3. Without debug information libraries are a tenth as large and build in less time;
# HOROVOD_DEBUG=1 builds with it.
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -DNDEBUG")

# Horovod would use any nvcc that it finds, a broken one and one without its toolkit, too, and fail.
if(PACELINE_WITHOUT_GPU)
  set(CMAKE_CUDA_COMPILER NOTFOUND)
  set(CMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit TRUE)
endif()

# Let `pytorch` and `tensorflow` link the objects of their common sources, compiled once with TensorFlow's flags: these
# sources include no header of a framework, but Eigen, whose alignment must be the same in all objects of a library.
function(paceline_share_objects)
  get_target_property(in_pytorch pytorch SOURCES)
  get_target_property(in_tensorflow tensorflow SOURCES)
  set(shared "")
  foreach(source ${in_tensorflow})
    if("${source}" IN_LIST in_pytorch)
      list(APPEND shared "${source}")
    endif()
  endforeach()
  if("${shared}" MATCHES "(cuda|hip|gpu|nccl|ddl)_operations")
    return() # their flags may differ between the frameworks
  endif()
  add_library(paceline_shared OBJECT ${shared})
  get_directory_property(flags DIRECTORY "${CMAKE_SOURCE_DIR}/horovod/tensorflow" DEFINITION CMAKE_CXX_FLAGS)
  separate_arguments(flags UNIX_COMMAND "${flags}")
  target_compile_options(paceline_shared PRIVATE ${flags})
  get_target_property(folders tensorflow INCLUDE_DIRECTORIES)
  target_include_directories(paceline_shared PRIVATE ${folders})
  set_target_properties(paceline_shared PROPERTIES CXX_STANDARD 17 POSITION_INDEPENDENT_CODE ON)
  foreach(target pytorch tensorflow)
    set(own "${in_${target}}")
    list(REMOVE_ITEM own ${shared})
    set_target_properties(${target} PROPERTIES SOURCES "${own}")
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:paceline_shared>)
  endforeach()
  if(TARGET compatible17_gloo)
    get_target_property(libraries pytorch LINK_LIBRARIES)
    list(TRANSFORM libraries REPLACE "^gloo$" "compatible17_gloo")
    set_target_properties(pytorch PROPERTIES LINK_LIBRARIES "${libraries}")
    set_target_properties(gloo PROPERTIES EXCLUDE_FROM_ALL ON)
  endif()
endfunction()

function(paceline_adjust_targets)
  file(GLOB_RECURSE sources "${CMAKE_SOURCE_DIR}/paceline/core/*.cc" "${CMAKE_SOURCE_DIR}/paceline/bridge/*.cc")
  foreach(target pytorch tensorflow)
    if(TARGET ${target})
      target_sources(${target} PRIVATE ${sources})
      target_include_directories(${target} PRIVATE "${CMAKE_SOURCE_DIR}/paceline" "${CMAKE_SOURCE_DIR}")
    endif()
  endforeach()
  foreach(target pytorch gloo)
    if(TARGET ${target})
      set_target_properties(${target} PROPERTIES CXX_STANDARD 20)
    endif()
  endforeach()
  if(TARGET tensorflow AND NOT TARGET compatible17_gloo)
    set_target_properties(tensorflow PROPERTIES CXX_STANDARD 17)
  endif()
  if(TARGET tensorflow)
    get_target_property(tensorflow_sources tensorflow SOURCES)
    list(FILTER tensorflow_sources EXCLUDE REGEX "xla_mpi_ops.cc$")
    set_target_properties(tensorflow PROPERTIES SOURCES "${tensorflow_sources}")
  endif()
  if(TARGET pytorch AND TARGET tensorflow)
    paceline_share_objects()
  endif()
endfunction()

cmake_language(DEFER CALL paceline_adjust_targets)
