# Flags live in one interface target, applied by the functions below.
add_library(attnscope_flags INTERFACE)
# gnu++20 is not used anywhere; nvcc 13.0 rejects CMake's cuda_std_20, so the CUDA flag is spelled out.
target_compile_options(attnscope_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-std=c++20 -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wno-restrict -fno-math-errno -ffp-contract=off>
  $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20 --expt-relaxed-constexpr -Xcompiler=-Wall,-Wextra>)
if(ATTNSCOPE_WERROR)
  target_compile_options(attnscope_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()
if(ATTNSCOPE_SANITIZE)
  target_compile_options(attnscope_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${ATTNSCOPE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=undefined>)
  target_link_options(attnscope_flags INTERFACE -fsanitize=${ATTNSCOPE_SANITIZE})
endif()
if(ATTNSCOPE_COVERAGE)
  target_compile_options(attnscope_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:--coverage -O1>)
  target_link_options(attnscope_flags INTERFACE --coverage)
endif()
if(ATTNSCOPE_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES Clang)
    message(FATAL_ERROR "the fuzz targets need clang; use the preset `fuzz`")
  endif()
  target_compile_options(attnscope_flags INTERFACE -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined)
  target_link_options(attnscope_flags INTERFACE -fsanitize=address,undefined)
endif()
target_include_directories(attnscope_flags INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)

# attnscope_add_library(<folder> SOURCES a.cpp … [DEPS other_folder …] [LINK third::party …])
# A static, position-independent library attnscope_<folder>; DEPS are folders above this one.
function(attnscope_add_library name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS;LINK" ${ARGN})
  add_library(attnscope_${name} STATIC ${A_SOURCES})
  set_target_properties(attnscope_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  # Flags are for building; an installed library brings only its public headers and what it links.
  target_link_libraries(attnscope_${name} PUBLIC $<BUILD_INTERFACE:attnscope_flags> ${A_LINK})
  target_include_directories(attnscope_${name} PUBLIC $<INSTALL_INTERFACE:include>)
  set_property(GLOBAL APPEND PROPERTY ATTNSCOPE_LIBRARIES attnscope_${name})
  foreach(dep IN LISTS A_DEPS)
    target_link_libraries(attnscope_${name} PUBLIC attnscope_${dep})
  endforeach()
endfunction()

# attnscope_add_test(<path/under/tests/without_extension> [DEPS folder …] [LINK …] [SOURCES extra.cpp …] [LABELS …])
# One GoogleTest program per source: tests/a/b_test.cpp tests src/a/b.cpp. Labels: unit (default), golden, cli, gpu, slow.
function(attnscope_add_test path)
  cmake_parse_arguments(A "" "" "DEPS;LINK;LABELS;SOURCES" ${ARGN})
  string(REPLACE "/" "_" target ${path})
  add_executable(${target} ${PROJECT_SOURCE_DIR}/tests/${path}.cpp ${A_SOURCES})
  foreach(dep IN LISTS A_DEPS)
    target_link_libraries(${target} PRIVATE attnscope_${dep})
  endforeach()
  target_link_libraries(${target} PRIVATE attnscope_flags ${A_LINK} GTest::gtest GTest::gmock GTest::gtest_main)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${target} PRIVATE
    ATTNSCOPE_SOURCE_DIR="${PROJECT_SOURCE_DIR}" ATTNSCOPE_BINARY_DIR="${PROJECT_BINARY_DIR}")
  add_test(NAME ${path} COMMAND ${target})
  if(NOT A_LABELS)
    set(A_LABELS unit)
  endif()
  set_tests_properties(${path} PROPERTIES LABELS "${A_LABELS}" SKIP_RETURN_CODE 77 TIMEOUT 900
    ENVIRONMENT "OMP_WAIT_POLICY=passive")  # tests share the machine: threads that spin at barriers starve each other
  if("gpu" IN_LIST A_LABELS)
    set_tests_properties(${path} PROPERTIES RESOURCE_LOCK gpu)
  endif()
endfunction()
