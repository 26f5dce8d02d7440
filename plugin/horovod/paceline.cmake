# Included by Horovod's own CMakeLists.txt through CMAKE_PROJECT_horovod_INCLUDE; runs when its targets exist.
#
# - torch >= 2.1 needs C++17 and torch 2.13 C++20 in its headers; Gloo must be compiled in the same language, or the
#   linker finds gloo::kDefaultTimeout twice. TensorFlow 2.21 is content with C++17, which Horovod sets for it.
# - Horovod's XLA operations do not compile against the headers that TensorFlow's wheels bring; they are left out.
# - Paceline's sources are compiled into both libraries.

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
endfunction()

cmake_language(DEFER CALL paceline_adjust_targets)
