# Third-party packages as imported targets; Debian 12 names in tools/setup.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(tomlplusplus QUIET)
if(NOT TARGET tomlplusplus::tomlplusplus)
  find_path(TOMLPP_INCLUDE toml++/toml.h REQUIRED)
  add_library(attnscope_toml INTERFACE)
  target_include_directories(attnscope_toml SYSTEM INTERFACE ${TOMLPP_INCLUDE})
  add_library(tomlplusplus::tomlplusplus ALIAS attnscope_toml)
endif()
find_path(EXPECTED_INCLUDE tl/expected.hpp REQUIRED)

find_path(HTTPLIB_INCLUDE httplib.h REQUIRED)   # cpp-httplib: `attnscope view`
find_library(HTTPLIB_LIBRARY cpp-httplib REQUIRED)

# Patterns in guess files; the static library, so that a bundle needs nothing more.
find_library(RE2_LIBRARY NAMES libre2.a re2 REQUIRED)
find_path(RE2_INCLUDE re2/re2.h REQUIRED)
add_library(RE2::re2 UNKNOWN IMPORTED)
set_target_properties(RE2::re2 PROPERTIES IMPORTED_LOCATION ${RE2_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${RE2_INCLUDE}
                      INTERFACE_LINK_LIBRARIES Threads::Threads)

find_package(ZLIB REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(ISAL REQUIRED IMPORTED_TARGET libisal)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(SIMDJSON IMPORTED_TARGET simdjson)   # tests only: the scanner's differential oracle

if(NOT ATTNSCOPE_TRACE_ONLY)
  find_package(OpenMP REQUIRED COMPONENTS CXX)
  # Debian's dnnl-config.cmake demands OpenCL headers that the library's CPU half does not need.
  find_library(DNNL_LIBRARY dnnl REQUIRED)
  find_path(DNNL_INCLUDE oneapi/dnnl/dnnl.hpp REQUIRED)
  add_library(DNNL::dnnl UNKNOWN IMPORTED)
  set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION ${DNNL_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${DNNL_INCLUDE})
else()
  add_library(OpenMP::OpenMP_CXX INTERFACE IMPORTED)  # fuzzed requests are tiny: their loops stay on one thread
endif()
if(ATTNSCOPE_TESTS)
  find_package(GTest REQUIRED)
endif()
if(ATTNSCOPE_BENCH)
  find_package(benchmark REQUIRED)
endif()
