# The CUPTI half of the profiler. CUPTI itself is opened at run time; only its headers are needed here.
attnscope_add_library(cupti
  SOURCES cupti_api.cpp cupti_records.cpp cupti_decode.cpp cupti_collector.cpp cupti_convert.cpp cupti_source.cpp
  DEPS profiler cuda
  LINK fmt::fmt)

# What `attnscope record` loads into other programs: self-contained, exporting its two entry points only.
find_path(NVTX3_INCLUDE nvtx3/nvToolsExt.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
if(NVTX3_INCLUDE)
  attnscope_add_library(spool SOURCES injection/spool.cpp injection/assemble.cpp DEPS cupti profiler LINK fmt::fmt)
  add_library(attnscope_inject SHARED injection/inject.cpp injection/nvtx.cpp injection/spool.cpp cupti_api.cpp
    cupti_records.cpp cupti_decode.cpp cupti_collector.cpp ${PROJECT_SOURCE_DIR}/src/cuda/library.cpp
    ${PROJECT_SOURCE_DIR}/src/base/demangle.cpp ${PROJECT_SOURCE_DIR}/src/base/text.cpp)
  set_target_properties(attnscope_inject PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  # No library of ours or of the C++ runtime may meet another copy in the program.
  target_link_libraries(attnscope_inject PRIVATE attnscope_flags fmt::fmt-header-only Threads::Threads ${CMAKE_DL_LIBS})
  target_link_options(attnscope_inject PRIVATE -static-libstdc++ -static-libgcc LINKER:--exclude-libs,ALL LINKER:--no-undefined)
  target_include_directories(attnscope_inject SYSTEM PRIVATE ${EXPECTED_INCLUDE} ${CUDAToolkit_INCLUDE_DIRS} ${NVTX3_INCLUDE})
  install(TARGETS attnscope_inject LIBRARY DESTINATION lib COMPONENT bundle)
endif()
