# Two components. `bundle`: the program and the shared libraries it needs, relocatable (bin/, lib/ found through
# $ORIGIN). `devel`: static libraries, public headers and the CMake package for find_package(attnscope).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set_target_properties(attnscope PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
install(TARGETS attnscope RUNTIME_DEPENDENCY_SET attnscope_needed RUNTIME DESTINATION bin COMPONENT bundle)
# What every Linux has stays out: the C and C++ runtimes, and the driver, which must be the machine's own.
install(RUNTIME_DEPENDENCY_SET attnscope_needed
  PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|stdc\\+\\+|gcc_s|cuda|nvidia-.*)\\.so"
  POST_EXCLUDE_REGEXES "/ld-linux.*" "/lib(c|m|dl|rt|pthread|stdc\\+\\+|gcc_s|cuda)\\.so.*"
  LIBRARY DESTINATION lib COMPONENT bundle)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md DESTINATION share/doc/attnscope COMPONENT bundle)

get_property(attnscope_libraries GLOBAL PROPERTY ATTNSCOPE_LIBRARIES)
list(REMOVE_ITEM attnscope_libraries attnscope_cli)
install(TARGETS ${attnscope_libraries} EXPORT attnscopeTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}/attnscope COMPONENT devel)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/attnscope DESTINATION include COMPONENT devel)
install(EXPORT attnscopeTargets NAMESPACE attnscope:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/attnscope COMPONENT devel)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/attnscopeConfig.cmake.in ${PROJECT_BINARY_DIR}/attnscopeConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/attnscope)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/attnscopeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/attnscopeConfig.cmake ${PROJECT_BINARY_DIR}/attnscopeConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/attnscope COMPONENT devel)

# `cpack` in the build folder writes attnscope-VERSION-Linux.tar.gz, the bundle; it runs from wherever it is unpacked.
set(CPACK_GENERATOR TGZ)
set(CPACK_PACKAGE_VENDOR "attnscope")
set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY ON)
set(CPACK_COMPONENTS_ALL bundle)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_PACKAGE_FILE_NAME "${PROJECT_NAME}-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR}")
include(CPack)
